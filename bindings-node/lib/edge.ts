// A bundler for an edge runtime takes this file in place of each entry of the package (the conditions edge-light, workerd and
// worker in package.json). It exports nothing, so that a bundle builds with any import. When it is loaded, it throws the reason.

throw new Error(
  'tidegate cannot run in an edge runtime, because it needs native code and TCP connections: ask limits in a function with the ' +
    'Node runtime, or in a service behind the edge (https://tidegate.github.io/tidegate/recipes/serverless/)',
);
