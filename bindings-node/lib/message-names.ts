// The core's messages name options as Rust and Python do, and write numbers as Rust does. Here they have the names of Node.

const NODE_NAMES: Readonly<Record<string, string>> = {
  block_for: 'blockFor',
  check_all: 'checkAll',
  clear_all: 'clearAll',
  count_denied: 'countDenied',
  deny_cache: 'denyCacheMs',
  from_file: 'fromFile',
  inf: 'Infinity',
  ipv6_prefix: 'ipv6Prefix',
  key_secret: 'keySecret',
  max_waiting: 'maxWaiting',
  max_waiting_per_key: 'maxWaitingPerKey',
  next_after: 'nextAfterMs',
  on_change: 'onChange',
  on_store_error: 'onStoreError',
  retry_after: 'retryAfterMs',
  reset_after: 'resetAfterMs',
  set_rollout: 'setRollout',
};

/** A message of the core with the names of Node. What a message quotes stays as it was given. */
export function inNodeNames(message: string): string {
  return message
    .replace(/^a timeout of /, 'a timeoutMs of ')
    .replaceAll(/"[^"]*"|\b(?:inf|[a-z]+\d?(?:_[a-z]+)+)\b/g, (found) => NODE_NAMES[found] ?? found);
}
