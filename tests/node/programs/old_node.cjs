// Loads the library as Node 18 would: without what Node 20 has.

delete String.prototype.isWellFormed;
delete Array.prototype.toReversed;
Object.defineProperty(process.versions, 'node', { value: '18.20.4' });
try {
  require('tidegate');
} catch (error) {
  console.log(`${error.code}: ${error.message}`);
}
