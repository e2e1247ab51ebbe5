-- sliding-log. Fields: head, tail, base, length of the list. limit.chunks: the prefix of the names of its chunks.
-- The list: '<I7I7' for each of the newest entries: its moment and the running total after it. When it is as long as two
-- chunks, its older half becomes a field of the log's key; these chunks are numbered from head to tail. So a check reads a
-- short list and bisects the chunks. base: the running total before the first entry that counts. Totals wrap at 2^53.
if algorithm == SLIDING_LOG then
  local CHUNK, WRAP, MAX_UNITS = 36 * 14, MAX + 1, (MAX - 1) / 2
  -- The units between two running totals; 0 when `total` lies before `before`.
  local function between(before, total)
    local units = (total - before) % WRAP
    return units <= MAX_UNITS and units or 0
  end
  local function entry(list, i) return unpack_('<I7I7', list, i * 14 + 1) end
  -- A chunk that the server evicted reads as empty. Its units count until newer entries have left the window.
  local function chunk(limit, i) return call('HGET', companions.log, limit.chunks .. i) or '' end
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
  local function last(value, first, limit)
    local list = value[limit.list]
    if list == '' then return 0, value[first + 2] end
    return entry(list, #list / 14 - 1)
  end
  -- The first entry for which `late(moment, total)` holds: its moment, the total before it, its chunk and its index there.
  -- The moment is nil when there is no such entry.
  local function find(value, first, limit, late)
    local list, head, tail = value[limit.list], value[first], value[first + 1]
    local before, at = value[first + 2], tail
    if tail > head and not (list ~= '' and not late(entry(list, 0))) then
      at = head + bisect(tail - head, function(i)
        local body = chunk(limit, head + i)
        return body ~= '' and late(entry(body, #body / 14 - 1))
      end)
    end
    local body = at < tail and chunk(limit, at) or list
    local n = #body / 14
    local i = bisect(n, function(i) return late(entry(body, i)) end)
    if i > 0 then
      local _, total = entry(body, i - 1)
      if between(before, total) > 0 then before = total end
    elseif at > head then
      local older = chunk(limit, at - 1)
      if older ~= '' then
        local _, total = entry(older, #older / 14 - 1)
        if between(before, total) > 0 then before = total end
      end
    end
    local moment = i < n and entry(body, i) or nil
    if moment and moment > last(value, first, limit) then error('order') end
    return moment, before, at, i
  end
  -- Moves head and base past what has left the window. value[limit] keeps the head that is stored, and when this was done.
  local function trim(value, first, now, limit)
    local touched, total = last(value, first, limit)
    local trimmed = value[limit]
    if not trimmed then
      trimmed = { head = value[first] }
      value[limit] = trimmed
    end
    if trimmed.at == now then return total end
    trimmed.at = now
    local p = limit.period
    if touched + p <= now then
      value[first], value[first + 2], value[limit.list] = value[first + 1], total, ''
      return total
    end
    local _, before, at, i = find(value, first, limit, function(moment) return moment + p > now end)
    value[first], value[first + 2] = at, before
    if at == value[first + 1] and i > 0 then value[limit.list] = sub(value[limit.list], i * 14 + 1) end
    return total
  end
  local function admits(value, first, now, cost, limit)
    local total = trim(value, first, now, limit)
    return between(value[first + 2], total) + cost <= limit.count
  end
  -- Deletes the chunks before head after the value is written: a refusal must find them where they were.
  local function drop_chunks(value, first, limit)
    local from, to = value[limit].head, value[first]
    if from == to then return end
    value[limit].head = to
    companions.deferred[#companions.deferred + 1] = function()
      -- The newest first: a damaged value may name many more chunks than there are.
      repeat
        local fields = {}
        while from < to and #fields < 1000 do
          to = to - 1
          fields[#fields + 1] = limit.chunks .. to
        end
      until call('HDEL', companions.log, values(fields)) == 0 or from >= to
    end
  end
  -- `as_of`: the units count as those of that later moment do. Entries have an order, so what follows is not earlier.
  local function charge(value, first, now, cost, limit, _, as_of)
    local total = trim(value, first, now, limit)
    drop_chunks(value, first, limit)
    local list = value[limit.list]
    local touched, moment = last(value, first, limit), as_of or now
    if moment < touched then moment = touched end
    if list == '' then total, value[first + 2] = 0, 0 end
    local room = MAX_UNITS - between(value[first + 2], total)
    total = (total + (cost < room and cost or room)) % WRAP
    if list ~= '' and touched == moment then
      list = sub(list, 1, #list - 14)
    elseif #list >= 2 * CHUNK then
      local newest = entry(list, CHUNK / 14 - 1)
      if newest > touched then error('order') end
      call('HSET', companions.log, limit.chunks .. value[first + 1], sub(list, 1, CHUNK))
      call('PEXPIRE', companions.log, floor((newest + limit.period - now) / 1000) + 500)
      list = sub(list, CHUNK + 1)
      value[first + 1] = value[first + 1] + 1
    end
    value[limit.list] = list .. pack('<I7I7', moment, total)
    return moment + limit.period
  end
  -- Units of a lease count from a moment that is still to come.
  local function possible(value, first, latest, limit)
    local list, head, tail, base = value[limit.list], value[first], value[first + 1], value[first + 2]
    local touched, total = last(value, first, limit)
    return head <= tail and tail <= MAX and (list ~= '' or head == tail) and #list <= 2 * CHUNK and touched <= latest
      and base <= MAX and total <= MAX and (total - base) % WRAP <= MAX_UNITS
  end
  local function refund(value, first, now, cost, limit)
    local total = trim(value, first, now, limit)
    local base = value[first + 2]
    local units = between(base, total)
    if cost >= units then
      value[first] = value[first + 1]
      drop_chunks(value, first, limit)
      value[first], value[first + 1], value[first + 2], value[limit.list] = 0, 0, 0, ''
      return units
    end
    local _, _, at, i = find(value, first, limit, function(_, sum) return between(base, sum) > cost end)
    value[first], value[first + 2] = at, (base + cost) % WRAP
    if at == value[first + 1] and i > 0 then value[limit.list] = sub(value[limit.list], i * 14 + 1) end
    drop_chunks(value, first, limit)
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
  local function give_back(value, first, now, cost, limit, charge)
    trim(value, first, now, limit)
    local at_moment, tail = charge.at + charge.life, value[first + 1]
    if at_moment + limit.period <= now then return 0 end
    local moment, before, at, i = find(value, first, limit, function(moment) return moment >= at_moment end)
    local own = 0
    if moment == at_moment and tail - at <= MAX_LOWERED then
      local _, total = entry(at < tail and chunk(limit, at) or value[limit.list], i)
      own = charge.left_of(cost, between(before, total), before ~= value[first + 2], charge)
    end
    if own > 0 then
      drop_chunks(value, first, limit)
      for index = at, tail - 1 do
        call('HSET', companions.log, limit.chunks .. index, lowered(chunk(limit, index), index == at and i or 0, own))
      end
      local list = lowered(value[limit.list], at == tail and i or 0, own)
      if at == tail then
        local _, total = entry(list, i)
        if total == before then list = sub(list, 1, i * 14) .. sub(list, i * 14 + 15) end
      end
      value[limit.list] = list
      if list == '' and value[first] == tail then value[first], value[first + 1], value[first + 2] = 0, 0, 0 end
    end
    if charge.undone and charge.refunds_since and own < cost then own = own + refund(value, first, now, cost - own, limit) end
    return own
  end
  local function ends(value, first, limit)
    local touched = last(value, first, limit)
    return touched == 0 and 0 or touched + limit.period
  end
  -- What a Decision needs and the value does not contain: the units used, when the cost is admitted, when the log ends, when
  -- one unit more is admitted.
  local function summary(value, first, now, cost, limit)
    local total = trim(value, first, now, limit)
    local base = value[first + 2]
    local used, release = between(base, total), 0
    if used + cost > limit.count and cost <= limit.count then
      local wanted = used + cost - limit.count
      release = (find(value, first, limit, function(_, sum) return between(base, sum) >= wanted end) or 0) + limit.period
    end
    if used == 0 then return pack('<dddd', 0, release, 0, 0) end
    local over = used > limit.count and used - limit.count or 0
    local oldest = find(value, first, limit, function(_, sum) return between(base, sum) > over end) or 0
    return pack('<dddd', used, release, ends(value, first, limit), oldest + limit.period)
  end
  local function used(value, first, limit)
    local _, total = last(value, first, limit)
    return between(value[first + 2], total)
  end
  return admits, charge, possible, refund, ends, nil, summary, nil, nil, used, nil, give_back
end
