// How calls and answers lie in the arrays through which they cross. Rust defines every number (`bindings-node/src/array_layout.rs`);
// here they are read once. Modules on the way of a check copy what they need into constants of their own, because V8 folds those,
// but reads a property of another module each time.

import { native } from './native.js';

const { CallField, CallKind, AnswerField, AnswerKind, DecisionFlag, DecisionField, LimitField, LimitFlag } = native;

// Where the numbers of a call stand.
export const CALL_TICKET = CallField.Ticket;
export const CALL_POLICY = CallField.Policy;
export const CALL_KIND = CallField.Kind;
export const CALL_COST = CallField.Cost;
export const CALL_KEY_LENGTH = CallField.KeyLength;
export const CALL_LENGTH = native.CALL_LENGTH;

// What a call does.
export const CHECK = CallKind.Check;
export const PEEK = CallKind.Peek;
export const CHARGE = CallKind.Charge;
export const REFUND = CallKind.Refund;
export const TAKE = CallKind.Take;

// Where the numbers of an answer stand.
export const ANSWER_TICKET = AnswerField.Ticket;
export const ANSWER_HEADER = AnswerField.Header;
export const ANSWER_VALUE = AnswerField.Value;

// What an answer is.
export const DECISION = AnswerKind.Decision;
export const GROUP = AnswerKind.Group;
export const NOTHING = AnswerKind.Nothing;
export const ERROR = AnswerKind.Error;
export const HOLD = AnswerKind.Hold;
export const ATTEMPTS = AnswerKind.Attempts;

// The parts of a header.
export const { KIND_MASK, SOURCE_SHIFT, COUNT_SHIFT } = native;
export const ALLOWED = DecisionFlag.Allowed;
export const SHADOW = DecisionFlag.Shadow;
export const EXCEEDED = DecisionFlag.Exceeded;
export const SIMPLE = DecisionFlag.Simple;
export const UNAVAILABLE = DecisionFlag.Unavailable;

// Where the numbers of a Decision stand, counted from its header.
export const HEADER = DecisionField.Header;
export const LIMIT = DecisionField.Limit;
export const REMAINING = DecisionField.Remaining;
export const RETRY_AFTER = DecisionField.RetryAfter;
export const RESET_AFTER = DecisionField.ResetAfter;
export const RESET_AT = DecisionField.ResetAt;
export const DELAY = DecisionField.Delay;
export const GRANTED = DecisionField.Granted;
export const DENIED_FOR = DecisionField.DeniedFor;
/** The store's time of the answer. */
export const AT = DecisionField.At;
export const NEXT_AFTER = DecisionField.NextAfter;
/** In whole seconds. */
export const MORE_AFTER = DecisionField.MoreAfter;
export const LIMITS = DecisionField.Limits;

// Where the numbers of a limit stand, counted from its first one.
export const LIMIT_KIND = LimitField.Kind;
export const LIMIT_LIMIT = LimitField.Limit;
export const LIMIT_REMAINING = LimitField.Remaining;
export const LIMIT_RETRY_AFTER = LimitField.RetryAfter;
export const LIMIT_RESET_AFTER = LimitField.ResetAfter;
export const LIMIT_FLAGS = LimitField.Flags;
export const LIMIT_NEXT_AFTER = LimitField.NextAfter;
export const LIMIT_OVER = LimitField.Over;
export const { LIMIT_LENGTH, ALGORITHM_COUNT } = native;
export const LIMIT_EXCEEDED = LimitFlag.Exceeded;
export const LIMIT_BINDS = LimitFlag.Binds;

export const { NEVER, TOO_MANY, FIRST_TASK_TICKET } = native;
