-- Tidegate: every check of every policy, in two phases: ask every limit, then charge every limit.
--
-- KEYS     For each key that is limited, `stride` keys of one slot: the value; with a stride of 3 also a sliding log's chunks
--          and the journal.
-- ARGV[1]  '<dBBHHI4': the time in µs (negative: the server's), the stride, the grouping, the number of instructions, the
--          number of limited keys, the number of the call. The grouping says how the entries of the call depend on each
--          other. 0: not at all. 1: one refusal refuses all. 2: as 1, but nothing is written. 3: all are refused. 4: as 0,
--          and fast_path.lua can serve the call.
-- ARGV[2]  '' when each key has one entry of instruction 1. Else '<H…', for each key: the number of its entries, then the
--          instruction of each.
-- ARGV[3…] The instructions: an operation with the numbers of its policy. See instruction.lua.
-- Reply    {item…, seal}. The item of an entry is the value after it. A refusal returns the stored value as it is: nothing
--          is encoded. That of a take ends with '<d', the units it has charged. The seal is '<dI4…I4': the time; the number of each entry that was refused, or whose hold was not
--          found; the number of the call. Where the value does not show which limits refused, they are bits from 2^16 on of
--          the number of the entry. The reply to a single entry of fast_path.lua is one text: '<dB', the time and how many
--          were refused, the value, and '<I4', the number of the call. The number of the call comes last, so that bytes that
--          were lost or repeated on the way show in it. docs/adr/0012 has the reasons.
--
-- A value is a header, the fields of all limits, in the full form also the moment at which a block ends, and the lists of
-- the limits. The header is a byte '001fnnnn' (version 1, f: full form, n: limits), then for each limit its tag: a byte
-- 'aaaafwww' (algorithm, f: has a fraction, w: bytes of a count), its period, and of a bucket the count.
-- docs/adr/0002 has the reasons.
--
-- A decoded value is a table: value[1] is the header, then come the fields of all limits, then their lists. Numbers are
-- integers below 2^53, which doubles hold exactly.
--
-- Every table and closure costs each call that makes it. So a call makes the rules of the algorithms that it uses, and
-- what follows fast_path.lua only when that could not serve it.

local pack, unpack_, sub, byte, floor, ceil = struct.pack, struct.unpack, string.sub, string.byte, math.floor, math.ceil
local values, call, pcall_ = unpack, redis.call, redis.pcall
local MAX = 9007199254740991

local now, stride, grouping, instruction_count, key_count, call_number = unpack_('<dBBHHI4', ARGV[1])
if now < 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
local refused = {}
local reply = {}

-- The TTL of a value, in ms, as text. It ends within half a second after the value does. The keys of one call have few
-- different ones, so texts are kept.
local ttl_texts = {}
local function ttl(ends)
  local quarters = floor((ends - now) / 250000) + 2
  local text = ttl_texts[quarters]
  if not text then
    text = string.format('%d', quarters * 250)
    ttl_texts[quarters] = text
  end
  return text
end

-- Of the key at hand: the names of the log's chunks and of the journal, and what is to be done once its value is written.
local companions

-- The functions of an algorithm's rule: admits, charge, refund, ends, and what only some have: start, summary, renew, close,
-- used, raise.
--   admits  brings the fields to the time `now` and says whether `cost` is admitted; it comes before charge
--   charge  charges `cost`, and returns what `ends` would
--   refund  gives `cost` back
--   ends    the moment from which on the fields mean the same as those of an unused key; 0 when they already do
-- `value` is a decoded value, `first` the slot of the limit's first field. `limit` has the limit's numbers: count, period,
-- and x, y, z, which the file of the algorithm explains; limit.list is the slot of its list.
-- `whole` says that limit.x is 1, `initial` that limit.z is not 0, `check_only` that a check needs admits and charge alone.
