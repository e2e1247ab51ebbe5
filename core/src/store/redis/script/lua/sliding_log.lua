-- sliding-log. Fields: head, tail, base, length of the list; L.s: the list's slot, L.k: names its chunks.
-- The list: '<I7I7' for each of the newest entries: its moment and the running total after it. When it holds two
-- chunks' worth, the older half moves to a field of the second key, numbered from head to tail: a check reads the
-- short list and bisects the chunks. base: the running total before the first entry that counts; totals wrap at 2^53.
if algorithm == 3 then
  local CHUNK, WRAP, MOST = 36 * 14, MAX + 1, (MAX - 1) / 2
  -- The units that a running total is past another; none for one that lies before it.
  local function past(before, total)
    local units = (total - before) % WRAP
    return units <= MOST and units or 0
  end
  local function entry(list, i) return unpack_('<I7I7', list, i * 14 + 1) end
  -- A chunk that the server evicted reads as one whose entries have left; its units count until the list rolls on.
  local function chunk(L, i) return call('HGET', keys.log, L.k .. i) or '' end
  -- The first of `n` items for which `late` holds.
  local function first(n, late)
    local low, high = 0, n
    while low < high do
      local middle = floor((low + high) / 2)
      if late(middle) then high = middle else low = middle + 1 end
    end
    return low
  end
  -- Finds the first entry for which `late(moment, total)` holds: its moment, the total before it, its chunk.
  -- Past the last entry the moment is nil.
  local function find(f, o, L, late)
    local list, head, tail = f[L.s], f[o], f[o + 1]
    local before, at = f[o + 2], tail
    if tail > head and not (list ~= '' and not late(entry(list, 0))) then
      at = head + first(tail - head, function(i)
        local body = chunk(L, head + i)
        return body ~= '' and late(entry(body, #body / 14 - 1))
      end)
    end
    local body = at < tail and chunk(L, at) or list
    local n = #body / 14
    local i = first(n, function(i) return late(entry(body, i)) end)
    if i > 0 then
      local _, total = entry(body, i - 1)
      if past(before, total) > 0 then before = total end
    elseif at > head then
      local older = chunk(L, at - 1)
      if older ~= '' then
        local _, total = entry(older, #older / 14 - 1)
        if past(before, total) > 0 then before = total end
      end
    end
    return i < n and entry(body, i) or nil, before, at, i
  end
  local function last(f, o, L)
    local list = f[L.s]
    if list == '' then return 0, f[o + 2] end
    return entry(list, #list / 14 - 1)
  end
  -- Moves head and base past what has left the window. f[L] remembers the first head, and when it was done.
  local function trim(f, o, t, L)
    local touched, total = last(f, o, L)
    local seen = f[L]
    if not seen then
      seen = { head = f[o] }
      f[L] = seen
    end
    if seen.at == t then return total end
    seen.at = t
    if t < touched then t = touched end
    local p = L.p
    if touched + p <= t then
      f[o], f[o + 2], f[L.s] = f[o + 1], total, ''
      return total
    end
    local _, before, at, i = find(f, o, L, function(moment) return moment + p > t end)
    f[o], f[o + 2] = at, before
    if at == f[o + 1] and i > 0 then f[L.s] = sub(f[L.s], i * 14 + 1) end
    return total
  end
  local function ask(f, o, t, c, L)
    local total = trim(f, o, t, L)
    return past(f[o + 2], total) + c <= L.n
  end
  -- Drops the chunks before head once the value is written: a refusal must find them where they were.
  local function drop(f, o, L)
    local from, to = f[L].head, f[o]
    if from == to then return end
    f[L].head = to
    keys.after[#keys.after + 1] = function()
      while from < to do
        local fields = {}
        while from < to and #fields < 1000 do
          fields[#fields + 1] = L.k .. from
          from = from + 1
        end
        call('HDEL', keys.log, values(fields))
      end
    end
  end
  local function add(f, o, t, c, L)
    local total = trim(f, o, t, L)
    drop(f, o, L)
    local list = f[L.s]
    local touched = last(f, o, L)
    if t < touched then t = touched end
    if list == '' then total, f[o + 2] = 0, 0 end
    local room = MOST - past(f[o + 2], total)
    total = (total + (c < room and c or room)) % WRAP
    if list ~= '' and touched == t then
      list = sub(list, 1, #list - 14)
    elseif #list >= 2 * CHUNK then
      call('HSET', keys.log, L.k .. f[o + 1], sub(list, 1, CHUNK))
      local newest = entry(list, CHUNK / 14 - 1)
      call('PEXPIRE', keys.log, floor((newest + L.p - t) / 1000) + 500)
      list = sub(list, CHUNK + 1)
      f[o + 1] = f[o + 1] + 1
    end
    f[L.s] = list .. pack('<I7I7', t, total)
    return t + L.p
  end
  local function take(f, o, t, c, L)
    local total = trim(f, o, t, L)
    drop(f, o, L)
    local base = f[o + 2]
    local left = past(base, total) - c
    if left < 0 then left = 0 end
    local list = f[L.s]
    while list ~= '' do
      local moment = entry(list, #list / 14 - 1)
      list = sub(list, 1, #list - 14)
      if list == '' and f[o + 1] > f[o] then
        f[o + 1] = f[o + 1] - 1
        list = chunk(L, f[o + 1])
      end
      local before = 0
      if list ~= '' then
        local _, sum = entry(list, #list / 14 - 1)
        before = past(base, sum)
      end
      if before < left then
        f[L.s] = list .. pack('<I7I7', moment, (base + left) % WRAP)
        return
      end
      if before == left and left > 0 then
        f[L.s] = list
        return
      end
    end
    f[o], f[o + 1], f[o + 2], f[L.s] = 0, 0, 0, ''
  end
  local function ends(f, o, L)
    local touched = last(f, o, L)
    return touched == 0 and 0 or touched + L.p
  end
  -- What a Decision needs to know and the value alone does not tell: units used, when a cost is admitted, the end.
  local function digest(f, o, t, c, L)
    local total = trim(f, o, t, L)
    local base = f[o + 2]
    local used, release = past(base, total), 0
    if used + c > L.n and c <= L.n then
      local wanted = used + c - L.n
      release = (find(f, o, L, function(_, sum) return past(base, sum) >= wanted end) or 0) + L.p
    end
    return pack('<ddd', used, release, used == 0 and 0 or ends(f, o, L))
  end
  return ask, add, take, ends, nil, digest
end
