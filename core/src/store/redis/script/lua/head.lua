-- Tidegate: every check of every policy, in two phases: ask every limit, then charge every limit.
--
-- KEYS     for each run, `stride` keys of one slot: the value; with stride 3 also the log's chunks and the journal.
-- ARGV[1]  '<dBBHH': the time in µs (below 0: the server's), stride, how the entries belong together (0: each is for
--          itself; 1: they stand or fall together; 2: it is only asked whether they would; 3: they fall, whatever is
--          answered; 4: as 0, and they are for fast_path.lua), the number of asks, the number of runs.
-- ARGV[2]  '' when run i is one entry of ask 1; else '<H…' for each run: its entries, then the ask of each.
-- ARGV[3…] the asks: an operation with the numbers of its policy, as script.rs writes them.
-- Reply    {time, refused, item…}: the numbers of the entries that were refused (or found no hold), with the limits that
--          refused as bits from 2^16 on where the value does not tell them; then for each entry the value as it stands
--          after it. A refusal returns the stored value as it is: nothing is formatted. What fast_path.lua answers to a single
--          entry is one text, '<dB' and the value: the time, and how many were refused.
--
-- A value is a header, the fields of all limits, for the full form the moment a block ends, and the limits' lists.
-- The header is a byte '001fnnnn' (version 1, f: full form, n: limits), then for each limit its tag: a byte
-- 'aaaafwww' (algorithm, fractions, bytes of a count), its period, and of a bucket the count. docs/adr/0002 has the reasons.
--
-- A call pays for every table and every closure it makes, so it makes those it needs: the rules of the algorithms at
-- hand, and what is rare (slow_path.lua) only when it happens.

local pack, unpack_, sub, byte, floor, ceil = struct.pack, struct.unpack, string.sub, string.byte, math.floor, math.ceil
local values, call, pcall_ = unpack, redis.call, redis.pcall
local MAX = 9007199254740991

local now, stride, together, asked, runs = unpack_('<dBBHH', ARGV[1])
if now < 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
local refused = {}
local out = { now, refused }

-- A TTL that ends within half a second after the value's meaning. Few differ in one call: they are kept as text.
local lives = {}
local function life(ends)
  local quarters = floor((ends - now) / 250000) + 2
  local text = lives[quarters]
  if not text then
    text = string.format('%d', quarters * 250)
    lives[quarters] = text
  end
  return text
end

-- The second and third key of the run at hand, and what is to be done once its value is written.
local keys

-- The rules of an algorithm: ask, add, take, ends, and what only some have: birth, digest, renew, close.
--   ask    brings the fields to the time t and says whether c is admitted; it comes before add
--   add    charges c, and says when the state will be as good as none
--   take   gives c back
--   ends   says when the state will be as good as none
-- `f` is a decoded value: f[1] the header, then the fields, then the lists. `o` is the slot of the limit's first
-- field. `L` holds the limit's numbers: n, and p, d, x, y as its file says; s is the slot of its list.
-- Numbers are integers below 2^53, so that doubles hold them exactly.
local function rules(algorithm, whole, initial)
