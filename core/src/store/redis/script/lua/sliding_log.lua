-- sliding-log. chunks: the prefix of the names of its chunks. The list: '<I7I7' for each of the newest entries: its moment and the
-- running total after it. When it is as long as two chunks, its older half becomes a field of the log's key; these chunks are
-- numbered from head to tail. So a check reads a short list and bisects the chunks. base: the running total before the first entry
-- that counts. Totals wrap at 2^53.
--[[ algorithms: SLIDING_LOG ]]
--[[ fields: head, tail, base, list ]]
--[[ numbers: count, period ]]
--[[ before alone: chunks ]]
chunks = select(14, unpack_('<HddHddBBc0Bc0BBdBc0Bc0', policy, after + 8))
--[[ alone ]]
-- What reads no chunk but the oldest, writes none, and leaves room for another check of that cost, of which the summary then says
-- nothing. The rest is left to the slow path.
local body, touched, left = list, 0, now - period
total = base
if list ~= '' then touched, total = unpack_('<I7I7', list, #list - 13) end
if head < tail then body = pcall_('HGET', KEYS[key_at + 1], chunks .. head) end
if head == tail and touched <= left then
  base, total, list, used, oldest, possible = 0, 0, '', 0, now, true
elseif type(body) == 'string' and #body > 0 and #body % 14 == 0 and unpack_('<I7', body, #body - 13) > left then
  local low, high = 0, #body / 14 - 1
  if unpack_('<I7', body) > left then high = 0 end
  while low < high do
    local middle = floor((low + high) / 2)
    if unpack_('<I7', body, middle * 14 + 1) > left then high = middle else low = middle + 1 end
  end
  if low > 0 then
    local _, before = unpack_('<I7I7', body, low * 14 - 13)
    if (before - base) % (MAX + 1) < MAX / 2 then base = before end
    if head == tail then list = sub(list, low * 14 + 1) end
  end
  local units
  oldest, units = unpack_('<I7I7', body, low * 14 + 1)
  units, used = (units - base) % (MAX + 1), (total - base) % (MAX + 1)
  possible = 0 < units and units <= used and oldest <= touched
end
possible = possible and head <= tail and tail <= MAX and base <= MAX and touched < now and #list < 28 * ENTRIES_OF_A_CHUNK
  and cost > 0 and used + 2 * cost <= count and used + cost < MAX / 2 and total + cost <= MAX
--[[ charge alone ]]
list, ends = list .. pack('<I7I7', now, total + cost), now + period
--[[ methods ]]
local CHUNK, WRAP, MAX_UNITS = 14 * ENTRIES_OF_A_CHUNK, MAX + 1, (MAX - 1) / 2
-- The units between two running totals; 0 when `total` lies before `before`.
local function between(before, total)
  local units = (total - before) % WRAP
  return units <= MAX_UNITS and units or 0
end
-- A running total and units more. Their plain sum may be beyond what a number expresses exactly.
local function sum(total, units)
  local room = WRAP - total
  return units < room and total + units or units - room
end
local function entry(entries, i) return unpack_('<I7I7', entries, i * 14 + 1) end
-- A chunk that the server evicted reads as empty. Its units count until newer entries have left the window.
local function chunk(self, i) return call('HGET', companions.log, self.chunks .. i) or '' end
-- The first of `n` items for which `late` holds, by bisection.
local function bisect(n, late)
  local low, high = 0, n
  while low < high do
    local middle = floor((low + high) / 2)
    if late(middle) then high = middle else low = middle + 1 end
  end
  return low
end
-- The moment of the newest entry and the running total after it.
local function last(self, value)
  local entries = list
  if entries == '' then return 0, base end
  return entry(entries, #entries / 14 - 1)
end
-- The first entry for which `late(moment, total)` holds: its moment, the total before it, its chunk and its index there.
-- The moment is nil when there is no such entry.
local function find(self, value, late)
  local entries, from, to, before = list, head, tail, base
  local at = to
  if to > from and not (entries ~= '' and not late(entry(entries, 0))) then
    at = from + bisect(to - from, function(i)
      local body = chunk(self, from + i)
      return body ~= '' and late(entry(body, #body / 14 - 1))
    end)
  end
  local body = at < to and chunk(self, at) or entries
  local n = #body / 14
  local i = bisect(n, function(i) return late(entry(body, i)) end)
  local older = i > 0 and body or at > from and chunk(self, at - 1) or ''
  if older ~= '' then
    local _, total = entry(older, (i > 0 and i or #older / 14) - 1)
    if between(before, total) > 0 then before = total end
  end
  local moment = i < n and entry(body, i) or nil
  if moment and moment > last(self, value) then error('order') end
  return moment, before, at, i
end
-- Forgets the entries before one: their units are those up to the total `before`.
local function drop_entries(self, value, before, at, i)
  head, base = at, before
  if at == tail and i > 0 then list = sub(list, i * 14 + 1) end
end
-- Moves head and base past what has left the window, and returns the newest total and value[self], which keeps the head that is
-- stored, when this was done, and the units that count then.
local function trim(self, value)
  local touched, total = last(self, value)
  local trimmed = value[self]
  if not trimmed then
    trimmed = { stored_head = head, at = 0, used = 0 }
    value[self] = trimmed
  end
  if trimmed.at == now then return total, trimmed end
  trimmed.at = now
  local p = period
  if touched + p <= now then
    head, base, list = tail, total, ''
    return total, trimmed
  end
  local _, before, at, i = find(self, value, function(moment) return moment + p > now end)
  drop_entries(self, value, before, at, i)
  return total, trimmed
end
function rule:advance(value)
  local total, trimmed = trim(self, value)
  trimmed.used = between(base, total)
end
function rule:used(value) return value[self].used end
-- Deletes the chunks before head after the value is written: a refusal must find them where they were.
local function drop_chunks(self, value)
  local trimmed, to = value[self], head
  local from = trimmed.stored_head
  if from == to then return end
  trimmed.stored_head = to
  companions.deferred[#companions.deferred + 1] = function()
    -- The newest first: a damaged value may name many more chunks than there are.
    repeat
      local names = {}
      while from < to and #names < 1000 do
        to = to - 1
        names[#names + 1] = self.chunks .. to
      end
    until call('HDEL', companions.log, values(names)) == 0 or from >= to
  end
end
-- `as_of`: the units count as those of that later moment do. Entries have an order, so what follows is not earlier.
function rule:charge(value, cost, _, as_of)
  local total = trim(self, value)
  drop_chunks(self, value)
  local entries = list
  local touched, moment = last(self, value), as_of or now
  if moment < touched then moment = touched end
  if entries == '' then total, base = 0, 0 end
  total = sum(total, min(cost, MAX_UNITS - between(base, total)))
  if entries ~= '' and touched == moment then
    entries = sub(entries, 1, #entries - 14)
  elseif #entries >= 2 * CHUNK then
    local newest = entry(entries, CHUNK / 14 - 1)
    if newest > touched then error('order') end
    call('HSET', companions.log, self.chunks .. tail, sub(entries, 1, CHUNK))
    call('PEXPIRE', companions.log, floor((newest + period - now) / 1000) + 500)
    entries = sub(entries, CHUNK + 1)
    tail = tail + 1
  end
  list = entries .. pack('<I7I7', moment, total)
  return moment + period
end
-- Units of a lease count from a moment that is still to come.
function rule:possible(value)
  local entries, touched, total = list, last(self, value)
  return head <= tail and tail <= MAX and (entries ~= '' or head == tail) and #entries <= 2 * CHUNK and touched <= LATEST
    and base <= MAX and total <= MAX and (total - base) % WRAP <= MAX_UNITS
end
function rule:ends(value)
  local touched = last(self, value)
  return touched == 0 and 0 or touched + period
end
function rule:unused(value) return list == '' and head == tail end
-- When so many units have left the window.
local function released(self, value, first_total, units)
  return (find(self, value, function(_, total) return between(first_total, total) >= units end) or 0) + period
end
-- What a Decision needs and the value does not contain: the units used, when the cost is admitted, when the log ends, when
-- one unit more is admitted.
function rule:summary(value, cost)
  local total, first_total = trim(self, value), base
  local used, release = between(first_total, total), 0
  if used + cost > count and cost <= count then release = released(self, value, first_total, used + cost - count) end
  if used == 0 then return pack('<dddd', 0, release, 0, 0) end
  return pack('<dddd', used, release, self:ends(value), released(self, value, first_total, max(used - count, 0) + 1))
end
--[[ more methods ]]
function rule:refund(value, cost)
  local total, first_total = trim(self, value), base
  local returned = between(first_total, total)
  if cost >= returned then
    head = tail
    drop_chunks(self, value)
    head, tail, base, list = 0, 0, 0, ''
    return returned
  end
  local _, _, at, i = find(self, value, function(_, later) return between(first_total, later) > cost end)
  drop_entries(self, value, sum(first_total, cost), at, i)
  drop_chunks(self, value)
  return cost
end
-- The entries of a body, from the one at `from` on less `units`.
local function lowered(body, from, units)
  local parts = { sub(body, 1, from * 14) }
  for i = from, #body / 14 - 1 do
    local moment, total = entry(body, i)
    parts[#parts + 1] = pack('<I7I7', moment, (total - units) % WRAP)
  end
  return table.concat(parts)
end
-- Running totals follow an entry that becomes smaller, so the chunks after it are written anew: few of them.
local MAX_LOWERED = 16
function rule:undo(value, cost, charge)
  trim(self, value)
  local at_moment, to, own = charge.at + charge.life, tail, 0
  if at_moment + period <= now then return 0 end
  local moment, before, at, i = find(self, value, function(moment) return moment >= at_moment end)
  if moment == at_moment and to - at <= MAX_LOWERED then
    local _, total = entry(at < to and chunk(self, at) or list, i)
    own = left_of(cost, between(before, total), before ~= base, charge)
  end
  if own > 0 then
    drop_chunks(self, value)
    for index = at, to - 1 do
      call('HSET', companions.log, self.chunks .. index, lowered(chunk(self, index), index == at and i or 0, own))
    end
    local entries = lowered(list, at == to and i or 0, own)
    if at == to then
      local _, total = entry(entries, i)
      if total == before then entries = sub(entries, 1, i * 14) .. sub(entries, i * 14 + 15) end
    end
    list = entries
    if entries == '' and head == to then head, tail, base = 0, 0, 0 end
  end
  return with_oldest(self, value, cost, own, charge)
end
