/** A map that remembers a value by its key. */
interface Known<K, V> {
  get(key: K): V | undefined;
  has(key: K): boolean;
  set(key: K, value: V): unknown;
}

/** Returns the value of a key, and makes it at the first call. */
export function kept<K, V>(known: Known<K, V>, key: K, make: () => V): V {
  let value = known.get(key);
  if (value === undefined && !known.has(key)) {
    value = make();
    known.set(key, value);
  }
  return value as V;
}
