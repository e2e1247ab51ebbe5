-- Tidegate: every check of every policy, in two phases: ask every limit, then charge every limit.
--
-- KEYS     For each key that is limited, `stride` keys of one slot: the value; with a stride of 3 also a sliding log's chunks
--          and the journal. A key may come again, for entries that are decided later.
-- ARGV     The instructions, each an operation with the numbers of its policy: see instruction.lua. Behind the last one stands the
--          program, where a call has one. Before the first one stands '<dBBHHI4': the time in µs (negative: the server's), the stride,
--          the grouping, the number of instructions, the number of limited keys, the number of the call. The grouping says how the
--          entries of the call depend on each other: not at all (INDEPENDENT), and in a call that begins with checks for the loops of
--          check.lua (CHECKS); one refusal refuses all (ALL_OR_NOTHING); the same, but nothing is written (DRY_RUN); all are refused
--          (RECORD_REFUSALS). compiler.rs makes numbers of names.
-- program  Not there when each key has one entry of instruction 1. Else '<H…', for each key: the number of its entries, then
--          the instruction of each. With CHECKS there stand before it, for the keys that the loops serve, '<ddH': the times from
--          which and until which the edges of all calendars hold, and the number of runs, and '<HHH' for each run: its instruction,
--          the number of entries of each key, and the number of its keys.
-- Reply    {item…, seal}. The item of an entry is the value after it. A refusal returns the stored value as it is: nothing
--          is encoded. That of a take ends with '<d', the units it has charged. The seal is '<dI4…I4': the time; the number
--          of each entry that was refused, or whose hold was not found; the number of the call. Where the value does not show
--          which limits refused, they are bits from 2^16 on of the number of the entry. The reply to a single entry of
--          such a loop is one text: '<dB', the time and how many were refused, the value, and '<I4', the number of the call.
--          That number comes last, so that bytes that were lost or repeated on the way show in it: docs/adr/0012.
--
-- A value is a header, the fields of all limits, in the full form also the moment at which a block ends, and the lists of
-- the limits. The header is a byte '001fnnnn' (version 1, f: full form, n: limits), then for each limit its tag: a byte
-- 'aaaafwww' (algorithm, f: has a fraction, w: bytes of a count), its period, and of a bucket the count. In the narrow form w
-- is 1, and a larger count of a bucket is said to be 255.
-- docs/adr/0002 has the reasons.
--
-- A decoded value is a table: value[1] is the header, then come the fields of all limits, then their lists. Numbers are
-- integers below 2^53, which doubles hold exactly.
--
-- Every table and closure costs each call that makes it. So a call makes the rules of the algorithms that it uses, and
-- what follows the loops for checks only when those could not serve it.

local pack, unpack_, floor, ceil = struct.pack, struct.unpack, math.floor, math.ceil
local sub, byte, values, call, pcall_ = string.sub, string.byte, unpack, redis.call, redis.pcall
local MAX = 9007199254740991

-- One call of `unpack` costs less than two, so that what the loops for checks read of an instruction is read here.
local now, stride, grouping, instruction_count, key_count, call_number, limit_count, slots, cost, header, format, unused,
  narrow_size, narrow_header, narrow_format, algorithm, count, period, x, y, after =
  unpack_('<dBBHHI4xxBBdBc0Bc0Hc0BBc0Bc0Bxxxdddd', ARGV[1])
local INSTRUCTION = 19
-- The narrow form of a bucket does not say its count. So it is written only where the clock that ends the key is also the one
-- that decides: see docs/adr/0002.
local server_time = now < 0
local narrows = server_time and narrow_size > 0
if server_time then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end

-- Nothing has run. The core asks again, with the edges around this time.
local function other_edges() return { err = string.format('TIDEGATE edges %.0f %.0f', now, call_number) } end

local program = ARGV[instruction_count + 1]
-- The numbers of the refused entries, and the item of each entry. The loops make none for a call of a single entry.
local refused, reply
if program or key_count > 1 then refused, reply = {}, {} end
-- The entries that a loop for checks cannot read: the place of their key, the first of them, how many they are, their instruction.
local unread
local ttl_quarters, ttl_text
-- What the loops have come to: the number and the text of the instruction at hand, the next place in the program, the first key of a run,
-- the next entry, and the numbers of a run.
local number, policy, at, key_at, entry, run_count, per_key, run_keys = 1, ARGV[1], 1, 1, 1, 1, 1, key_count
