// What a bundler for an edge runtime takes in place of each entry of the package (the conditions edge-light, workerd and worker in
// package.json). It exports nothing, so a bundle is built whatever is imported, and says why it cannot run when it is loaded.

throw new Error(
  'tidegate cannot run in an edge runtime, because it needs native code and TCP connections: ask limits in a function with the ' +
    'Node runtime, or in a service behind the edge (https://tidegate.github.io/tidegate/recipes/serverless/)',
);
