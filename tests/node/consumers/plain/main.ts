// A project without the types of Node and of a browser. It passes an option on as it is, also if it may be undefined.

import {
  type AcquireOptions,
  type Attempt,
  type CancelSignal,
  type CheckEntry,
  type CheckOptions,
  type CostOptions,
  type Decision,
  type DecisionFields,
  type HoldOptions,
  Limit,
  Limiter,
  type LimiterOptions,
  type LimitOptions,
  type LimitState,
  lint,
  ManualClock,
  Policy,
  type PolicyDescription,
  type PolicyOptions,
  RateLimited,
  rollout,
  type Source,
  type StoreChange,
  type WrapOptions,
} from 'tidegate';

/** Every option with a value that may be undefined. */
type Loose<T> = { [Name in keyof T]?: T[Name] | undefined };

export function loose(
  limiter: Loose<LimiterOptions>,
  policy: Loose<PolicyOptions>,
  limit: Loose<LimitOptions>,
  check: Loose<CheckOptions>,
  cost: Loose<CostOptions>,
  acquire: Loose<AcquireOptions>,
  hold: Loose<HoldOptions>,
  maybe: {
    cost: number | undefined;
    signal: CancelSignal | undefined;
    described: Loose<Omit<PolicyDescription, 'limits'>>;
  },
): unknown {
  const made = new Limiter(limiter);
  const description: PolicyDescription = { limits: '5/s', ...maybe.described };
  const wrap: WrapOptions<[string]> = { key: (user) => user, cost: maybe.cost };
  return [
    Limiter.fromFile('policies.yaml', limiter),
    new Policy([new Limit('gcra', 5, limit), '5/s'], policy),
    new Limiter({ policies: { description }, store: rollout('memory://', 'memory://', 5) }),
    made.check('5/s', 'a', check),
    made.peek('5/s', 'a', cost),
    made.charge('5/s', 'a', cost),
    made.refund('5/s', 'a', cost),
    made.acquire('5/s', 'a', acquire),
    made.hold('concurrency 5', 'a', hold),
    made.checkAll([['5/s', 'a', maybe.cost]]),
    made.wrap('5/s', (user: string) => user, wrap),
  ];
}

/** All fields of a Decision. */
export function told(decision: Decision): DecisionFields {
  const source: Source = decision.source;
  const only: 'store' | 'deny-cache' | 'lease' | 'fallback' = source;
  const {
    allowed,
    policy,
    key,
    cost,
    granted,
    limit,
    remaining,
    retryAfterMs,
    nextAfterMs,
    resetAfterMs,
    resetAt,
    delayMs,
    shadow,
    abnormal,
    overridden,
    learned,
    unavailable,
  } = decision;
  const limits: readonly LimitState[] = decision.limits;
  const fields: DecisionFields = {
    allowed,
    policy,
    key,
    cost,
    granted,
    limit,
    remaining,
    retryAfterMs,
    nextAfterMs,
    resetAfterMs,
    resetAt,
    delayMs,
    limits,
    source: only,
    shadow,
    abnormal,
    overridden,
    learned,
    unavailable,
  };
  const numbers: number[] = limits.map((state) => state.over + state.periodMs + (state.nextAfterMs ?? 0));
  return numbers.length === 0 ? fields : decision.toJSON();
}

/** Functions keep their arguments, their result, their `this` and their type parameters. */
export async function wrapped(limiter: Limiter): Promise<void> {
  const key = 'all';
  const sync: (user: string, times?: number) => Promise<number> = limiter.wrap(
    '5/s',
    (user: string, times = 1) => user.length * times,
    { key: (user, times) => `${user.toUpperCase()}${times?.toFixed()}` },
  );
  const wait: (user: string) => Promise<string> = limiter.wrap('5/s', async (user: string) => user, { key });
  const classed = limiter.wrap('5/s', (_user: string, _batch: boolean) => 1, {
    key,
    priority: (_user, batch) => (batch ? 'batch' : undefined),
  });
  // @ts-expect-error a class is a text
  limiter.wrap('5/s', () => 1, { key, priority: 5 });
  const same: <T>(value: T) => Promise<Awaited<T>> = limiter.wrap('5/s', <T>(value: T): T => value, { key });
  class Mailer {
    readonly from = 'me';
    send = limiter.wrap(
      '5/s',
      function (this: Mailer, to: string) {
        return `${this.from} ${to}`;
      },
      { key },
    );
  }
  const sent: string = await new Mailer().send('you');
  // @ts-expect-error the argument is a text
  await sync(5);
  // @ts-expect-error a key is a text
  limiter.wrap('5/s', (user: number) => user, { key: (user) => user });
  // @ts-expect-error there has to be a key
  limiter.wrap('5/s', (user: number) => user, {});
  void [wait, classed, same, sent];
}

export async function others(limiter: Limiter, change: StoreChange): Promise<void> {
  const entries: CheckEntry[] = [
    ['5/s', 'a'],
    ['5/s', 'b', 2],
  ];
  const attempts: readonly Attempt[] = await limiter.journal('5/s', 'a');
  const held: number = await limiter.hold('concurrency 1', 'a', (hold) => hold.decision.remaining);
  const when: Date = change.since;
  const clock = new ManualClock(0);
  clock.advance(1_000);
  const warnings: readonly string[] = lint('policies.yaml').map(({ message }) => message);
  try {
    await limiter.checkAll(entries);
  } catch (error) {
    if (error instanceof RateLimited) throw error.decision;
  }
  const lease: number | string | undefined = new Policy('500/s', { lease: '5%' }).lease;
  void lease;
  // @ts-expect-error there is no such option
  await limiter.check('5/s', 'a', { costs: 5 });
  // @ts-expect-error options are an object
  await limiter.check('5/s', 'a', 5);
  // @ts-expect-error there is no such option
  await limiter.acquire('5/s', 'a', { timeout: 5 });
  // @ts-expect-error there is no such option
  new Limiter({ polices: {} });
  void [attempts, held, when, warnings];
}

/** The names of policies in code are types. */
export async function names(any: string): Promise<void> {
  const limiter = new Limiter({ policies: { free: '5/minute', pro: new Policy('9/minute') }, prefix: 'app' });
  await limiter.check('free', 'a');
  await limiter.peek('pro', 'a', { cost: 2 });
  await limiter.checkAll([['free', 'a'], { policy: 'pro', key: 'a' }]);
  // A notation in place, and a Policy.
  await limiter.check('20/minute; 5/3s', 'a');
  await limiter.check('10 per 2 hours', 'a');
  await limiter.hold('concurrency 8', 'a');
  await limiter.check(new Policy('5/minute', { name: 'row' }), 'a');
  // @ts-expect-error there is no such policy
  await limiter.check('fre', 'a');
  // @ts-expect-error there is no such policy
  await limiter.checkAll([['fre', 'a']]);
  // @ts-expect-error there is no such policy
  await limiter.acquire('fre', 'a');
  // @ts-expect-error there is no such policy
  limiter.wrap('fre', (user: string) => user, { key: 'all' });
  // @ts-expect-error it may be no policy
  await limiter.check(any, 'a');
  // A limiter with known names is one like any other.
  const whatever: Limiter = limiter;
  await whatever.check(any, 'a');
  const wide: Limiter = new Limiter({ policies: { free: '5/minute' } });
  await wide.check(any, 'a');
  // The names in a file, and in an object that is filled at run time, are not known.
  await (await Limiter.fromFile('policies.yaml', { policies: { free: '5/minute' } })).check(any, 'a');
  const rows: Record<string, string> = {};
  await new Limiter({ policies: rows }).check(any, 'a');
  await new Limiter({ store: 'memory://' }).check(any, 'a');
  const named: Limiter<'free'> = new Limiter({ policies: { free: '5/minute' } });
  void named;
}
