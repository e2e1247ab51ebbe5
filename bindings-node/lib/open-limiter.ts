import { DenyCache } from './deny-cache.js';
import { builderOf, type LimiterOptions } from './limiter-options.js';
import { LOOP_CAN_POLL, unwrap } from './native.js';
import { StoreChangeReporter } from './store-changes.js';
import { Transport } from './transport.js';

/** What a limiter is made of. */
export interface OpenLimiter {
  readonly transport: Transport;
  /** Only with a shared store: memory knows at once that a key is still denied. */
  readonly denyCache: DenyCache | undefined;
  readonly local: boolean;
  readonly reporter: StoreChangeReporter;
}

/** Opens the native limiter of these options, and of a policy file if there is one. */
export function openLimiter(options: LimiterOptions, file: string | undefined): OpenLimiter {
  const builder = builderOf(options, file);
  const { clock, logger, onChange } = options;
  const local = builder.isLocal();
  const reporter = new StoreChangeReporter(logger, onChange);
  // Weak: the native side keeps these callbacks for as long as it lives. A strong reference would keep both for ever.
  const weak = new WeakRef(reporter);
  builder.onWarning((message) => weak.deref()?.warn(message));
  if (!local) builder.onChange((change) => weak.deref()?.report(change));
  // The core counts the denials of each key for `tidegate top`, and has to see them.
  const isPublished = (process.env['TIDEGATE_TOP'] ?? '') !== '';
  const denyCache = local || isPublished ? undefined : new DenyCache(clock);
  const transport = new Transport(
    (calls, keyText, answers, onAnswers) => unwrap(builder.build(calls, keyText, answers, onAnswers, LOOP_CAN_POLL)),
    local || clock !== undefined,
    denyCache,
  );
  return { transport, denyCache, local, reporter };
}
