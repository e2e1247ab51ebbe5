-- What happens rarely, made when it first does: other forms of a value, refusals that change something, operations
-- besides a check, keys with companions, entries that stand or fall together.
local function others()
  -- The fields of each algorithm: a moment (7 bytes), a count (as wide as the tag says), the length of a list.
  local SHAPES = { 'MC', 'MC', 'MMMS', 'MCCS', 'MCC', 'MC', 'MC', 'MC', 'MCS' }

  -- What of an ask only these paths need.
  local function complete(ask)
    if ask.complete then return end
    ask.complete = true
    ask.shadow, ask.charges = ask.flags % 2 == 1, floor(ask.flags / 2) % 2 == 1
    local at
    ask.block, ask.hold, ask.journal, ask.keep, ask.grace, ask.full_header, ask.full_format, at =
      unpack_('<ddHddBc0Bc0', ask.rest)
    for _, L in ipairs(ask.limits) do
      local four = L.four
      L.take, L.ends, L.birth, L.digest, L.renew, L.close = values(four, 3, 8)
      L.fields, L.counts, L.w, L.id, L.k, at = unpack_('<BBdBc0Bc0', ask.rest, at)
      if L.digest then ask.digests = true end
    end
  end

  -- The limits a header names and the format of what follows it; nil when it is none.
  local function tags_of(s)
    local full, position, tags, format = floor(byte(s, 1) / 16) % 2 == 1, 2, {}, { '<' }
    for i = 1, byte(s, 1) % 16 do
      local byte_, period = byte(s, position, position + 1)
      if not period then return nil end
      local algorithm, width, length = floor(byte_ / 16), byte_ % 8, period == 255 and 8 or 1
      local shape = SHAPES[algorithm]
      if not shape then return nil end
      if floor(byte_ / 8) % 2 == 1 then shape = shape .. 'C' end
      local tag = { id = algorithm .. sub(s, position + 1, position + length), shape = shape, at = #format }
      tags[i] = tag
      position = position + 1 + length
      if algorithm >= 6 and algorithm <= 8 then
        if #s < position + width - 1 then return nil end
        tag.count = unpack_('<I' .. width, s, position)
        position = position + width
      end
      for field in shape:gmatch('.') do
        format[#format + 1] = 'I' .. (field == 'M' and 7 or field == 'S' and 4 or full and 7 or width)
      end
    end
    return tags, format, position, full
  end

  -- Reads what the same bucket left when it had `count` in its period, which has `mine` now. What was over then stays
  -- over; of the rest the units stay what they are, and a fraction of a microsecond that has no place in the new
  -- numbers is waited for.
  local function refit(f, L, count, mine, since, units, part)
    local period = L.p * (mine / L.d)
    local common, rest = count, period
    while rest > 0 do common, rest = rest, common % rest end
    local old = { p = period / common, d = count / common }
    local _, _, _, ends_then = rules(7, old.d == 1, false)
    local ends = ends_then({ since, units, part }, 1, old)
    if ends <= now then
      if ends > since then since = ends end
      units, part = 0, 0
    elseif part > 0 and old.d ~= L.d then
      since, part = since + 1, 0
    end
    f[L.o], f[L.o + 1] = since, units < L.x and units or L.x
    if L.d > 1 then f[L.o + 2] = part end
  end

  -- Reads a value that another version of the policy wrote: what was used stays used for each limit whose algorithm
  -- and period are the same, the others begin afresh. Returns nil and why when it is no value at all.
  local function adopt(s, ask)
    if floor(byte(s, 1) / 32) ~= 1 then return nil, 'is no state of this version of Tidegate' end
    local tags, format, position, full = tags_of(s)
    if not tags then return nil, 'holds a broken state' end
    local mine = tags_of(ask.header)
    if full then format[#format + 1] = 'I7' end
    local fits, fields = pcall(function() return { unpack_(table.concat(format), s, position) } end)
    if not fits then return nil, 'holds a broken state' end
    position = fields[#format]
    for _, tag in ipairs(tags) do
      if tag.shape:sub(-1) == 'S' then
        local length = fields[tag.at + #tag.shape - 1]
        tag.list = sub(s, position, position + length - 1)
        position = position + length
      end
    end
    local f = { unpack_(ask.format, ask.blank) }
    for index, L in ipairs(ask.limits) do
      if L.s > 0 then f[L.s] = '' end
      for i, tag in ipairs(tags) do
        if tag.id == L.id then
          local count, at = mine[index].count, tag.at
          if tag.count ~= count then
            refit(f, L, tag.count, count, fields[at], fields[at + 1], #tag.shape == 3 and fields[at + 2] or 0)
          else
            for field = 0, L.fields - 1 do f[L.o + field] = fields[at + field] end
            if L.s > 0 then f[L.s] = tag.list end
          end
          table.remove(tags, i)
          break
        end
      end
    end
    f.slow, f.blocked = true, full and fields[#format - 1] or 0
    return f
  end

  local function ends_of(f, ask)
    local ends = f.blocked or 0
    for _, L in ipairs(ask.limits) do
      local limit_ends = L.ends(f, L.o, L)
      if limit_ends > ends then ends = limit_ends end
    end
    -- A bucket that did not start full is remembered for a while after all is over: else it would start again.
    return ends > 0 and ends + ask.grace or 0
  end

  -- A decoded value. When all of it is over, buckets that do not start full read as never seen.
  local function read(s, ask)
    local f, why = decode(s, ask), nil
    if f and ask.flags % 8 < 4 then return f end
    complete(ask)
    if not f then f, why = adopt(s, ask) end
    if f and ask.grace > 0 then
      if ends_of(f, ask) <= now then
        for _, L in ipairs(ask.limits) do
          for slot = L.o, L.birth and L.o + L.fields - 1 or 0 do f[slot] = 0 end
        end
      end
      f.slow = true
    end
    return f, why
  end

  -- In the compact form where every number fits and nothing is blocked, else in the full form.
  local function write(f, ask)
    complete(ask)
    local full = f.blocked ~= nil and f.blocked > 0
    for _, L in ipairs(ask.limits) do
      for slot = L.o + 1, L.o + L.counts do full = full or f[slot] > L.w end
    end
    if not full then return encode(f, ask) end
    for _, L in ipairs(ask.lists or {}) do f[L.len] = #f[L.s] end
    local slot = ask.slots + 1
    local header, kept = f[1], f[slot]
    f[1], f[slot] = ask.full_header, f.blocked or 0
    local s = pack(ask.full_format, values(f, 1, slot))
    f[1], f[slot] = header, kept
    for _, L in ipairs(ask.lists or {}) do s = s .. f[L.s] end
    return s
  end

  -- What a refusal changes: nothing, unless the policy says so. Returns the value to store, if any.
  local function refuse(ask, s, blocked)
    if ask.flags < 2 then return nil end
    local f, changed = read(s, ask), false
    for _, L in ipairs(ask.limits) do
      if ask.charges then
        L.ask(f, L.o, now, ask.cost, L)
        L.add(f, L.o, now, ask.cost, L, ask.hold)
        changed = true
      elseif L.birth and not blocked and L.birth(f, L.o, now, L) then
        changed = true
      end
    end
    if ask.block > 0 and not blocked then
      f.blocked, changed = now + ask.block, true
    end
    return changed and f or nil
  end

  -- Takes back what was charged at `at`, by algorithm: exactly that, or less when some of it has gone since. What others
  -- charged is not touched: a refund would take the newest units, whosever they are.
  local function undo_window(f, o, t, c, L, at)
    if f[o] <= at then L.take(f, o, t, c, L) end
  end
  local function undo_bucket(f, o, t, c, L, at)
    L.ask(f, o, t, 0, L)
    local k = f[o + 1] - c
    if k <= 0 then
      f[o + 1] = 0
    else
      -- Had it not been charged, the bucket might have stood empty for as long as that.
      f[o], f[o + 1] = f[o] + (t > at and t - at or 0), k
    end
  end
  local undoing = {
    undo_window,
    function(f, o, t, c, L, at) -- calendar-window
      local g = { 0, 0 }
      L.ask(g, 1, at, 0, L)
      if g[1] == f[o] then L.take(f, o, t, c, L) end
    end,
    function(f, o, t, c, L, at) -- sliding-log
      L.ask(f, o, t, 0, L)
      local list, before = f[L.s], f[o] == f[o + 1] and f[o + 2]
      for i = 1, #list, 14 do
        local moment, total = unpack_('<I7I7', list, i)
        -- What the first entry holds is not known when there are chunks before it: then nothing is given back.
        if moment == at and before then
          local parts = { sub(list, 1, i - 1) }
          for j = i, #list, 14 do
            moment, total = unpack_('<I7I7', list, j)
            total = (total - c) % (MAX + 1)
            if j > i or total ~= before then parts[#parts + 1] = pack('<I7I7', moment, total) end
          end
          f[L.s] = table.concat(parts)
          if f[L.s] == '' then f[o], f[o + 1], f[o + 2] = 0, 0, 0 end
          return
        end
        before = total
      end
    end,
    function(f, o, t, c, L, at) -- sliding-window
      L.ask(f, o, t, 0, L)
      local last = at - at % L.d + L.d - 1
      if f[o] - f[o] % L.d + L.d - 1 == last then
        if c > f[o + 1] then c = f[o + 1] end
        f[o + 1], f[o + 2] = f[o + 1] - c, f[o + 2] - c
        return
      end
      local list = f[L.s]
      for i = 1, #list, 14 do
        local its, units = unpack_('<I7I7', list, i)
        if its == last then
          if c > units then c = units end
          local rest = units > c and pack('<I7I7', last, units - c) or ''
          f[L.s], f[o + 2] = sub(list, 1, i - 1) .. rest .. sub(list, i + 14), f[o + 2] - c
          return
        end
      end
    end,
    function(f, o, t, c, L, at) -- sliding-counter
      L.ask(f, o, t, 0, L)
      local past = floor(f[o] / L.p) - floor(at / L.p)
      if past == 0 or past == 1 then
        local slot = o + 2 - past
        f[slot] = f[slot] > c and f[slot] - c or 0
      end
    end,
    undo_bucket, undo_bucket, undo_bucket,
    function(f, o, t, c, L, at) -- concurrency
      local list = f[L.s]
      for i = #list - 20, 1, -21 do
        local expires, id, units = unpack_('<I7I7I7', list, i)
        if expires == at + L.p and id == 0 and expires > t then
          local taken = units < c and units or c
          local rest = units > taken and pack('<I7I7I7', expires, 0, units - taken) or ''
          f[L.s], f[o + 1] = sub(list, 1, i - 1) .. rest .. sub(list, i + 21), f[o + 1] - taken
          return
        end
      end
    end,
  }

  -- Operations besides check and peek, by number: each changes `f` and returns whether it applied.
  local operations = {
    [3] = function(ask, f) -- charge
      for _, L in ipairs(ask.limits) do
        L.ask(f, L.o, now, ask.cost, L)
        L.add(f, L.o, now, ask.cost, L)
      end
      return true
    end,
    [4] = function(ask, f) -- refund
      for _, L in ipairs(ask.limits) do L.take(f, L.o, now, ask.cost, L) end
      return true
    end,
    [5] = function(ask, f) -- block until then; 0 is unblock
      f.blocked = ask.block > 0 and now + ask.block or 0
      return true
    end,
    [6] = function(ask, f) -- renew
      local found = false
      for _, L in ipairs(ask.limits) do found = L.renew and L.renew(f, L.o, now, L, ask.hold) ~= nil or found end
      return found
    end,
    [7] = function(ask, f) -- close
      local found = false
      for _, L in ipairs(ask.limits) do found = L.close and L.close(f, L.o, now, L, ask.hold) ~= nil or found end
      return found
    end,
    [10] = function(ask, f) -- undo a charge of that moment
      for _, L in ipairs(ask.limits) do undoing[L.a](f, L.o, now, ask.cost, L, ask.block) end
      return true
    end,
  }

  -- Runs one entry on a decoded value: whether it was admitted, the decoded value to store, if any, and the limits that
  -- refused, bit by bit from 2^16 on, where the value will not tell it. With `apart` a refusal is left for later.
  local function enter(ask, f, s, apart)
    local op = ask.op
    if op > 2 then
      local applied = operations[op](ask, f)
      if applied then return true, f, 0 end
      return false, nil, 0
    end
    local limits, cost = ask.limits, ask.cost
    local blocked = f.blocked and f.blocked > now
    local admitted, every, mask = not blocked, op == 1 and (apart or ask.charges), 0
    for i = 1, #limits do
      local L = limits[i]
      if (admitted or every) and not L.ask(f, L.o, now, cost, L) then
        admitted = false
        if every then mask = mask + 2 ^ (15 + i) end
      end
    end
    if op == 2 then return admitted, nil, 0 end
    if not admitted then return false, not apart and refuse(ask, s, blocked) or nil, mask end
    if f.blocked then f.blocked = 0 end
    for i = 1, #limits do
      local L = limits[i]
      L.add(f, L.o, now, cost, L, ask.hold)
    end
    return true, f, 0
  end

  local function store(key, s, ends)
    local reply
    if ends > now then
      reply = pcall_('SET', key, s, 'PX', life(ends))
    else
      reply = pcall_('DEL', key)
    end
    local after = keys.after
    if #after > 0 then
      keys.after = {}
      for i = 1, #after do after[i]() end
    end
    return type(reply) == 'table' and reply.err and reply or nil
  end

  local function note(ask, admitted)
    local entry = pack('<ddB', now, ask.cost, admitted and 1 or 0) .. sub(ask.text, ask.meta)
    call('LPUSH', keys.journal, entry)
    call('LTRIM', keys.journal, 0, ask.journal - 1)
    call('PEXPIRE', keys.journal, ask.keep)
  end

  -- The value as the caller can read it: in this policy's form, with what only the script can tell of a log.
  local function told(ask, s)
    local f = read(s, ask)
    if f.slow then s = write(f, ask) end
    for _, L in ipairs(ask.limits) do
      if L.digest then s = s .. L.digest(f, L.o, now, ask.cost, L) end
    end
    return s
  end

  local function open(run)
    local base = (run - 1) * stride
    if stride == 3 then keys.log, keys.journal = KEYS[base + 2], KEYS[base + 3] end
    local s = pcall_('GET', KEYS[base + 1])
    if type(s) == 'table' then return nil, s end
    return s or ''
  end

  -- One key's entries: read once, written once.
  local function serve(run, entry, n, plan, at)
    local key = KEYS[(run - 1) * stride + 1]
    local s, failure = open(run)
    local f, last, ends, changed = nil, nil, 0, false
    for i = 1, n do
      local ask = asks[plan and plan[at + i] or 1]
      local slot, op = entry + i + 2, ask.op
      complete(ask)
      if failure then
        out[slot] = failure
      elseif op == 8 then -- clear
        local reply = pcall_('DEL', key, stride == 3 and keys.log or key)
        if type(reply) == 'table' then
          out[slot] = reply
        else
          s, f, changed, out[slot] = '', nil, false, ''
        end
      elseif op == 9 then -- journal
        out[slot] = call('LRANGE', keys.journal, 0, -1)
      else
        local why
        if ask ~= last or not f then f, why = read(s, ask) end
        last = ask
        if not f then
          out[slot] = { err = 'TIDEGATE the key ' .. why }
        else
          local slow = f.slow
          local admitted, kept, mask = enter(ask, f, s)
          if kept then
            s = write(kept, ask)
            ends, changed = ends_of(kept, ask), true
            if kept ~= f then f = nil end
          end
          if not admitted then refused[#refused + 1] = entry + i + mask end
          if ask.journal > 0 and op == 1 then note(ask, admitted) end
          out[slot] = (ask.digests or slow) and told(ask, s) or s
        end
      end
    end
    if changed then
      failure = store(key, s, ends)
      if failure then
        for i = 1, n do out[entry + i + 2] = failure end
      end
    end
  end

  -- All entries stand or fall together: nothing is written before every one was asked. What only asks writes nothing.
  local function serve_together(plan)
    local held, order, falls, entry, at, asks_only = {}, {}, together == 3, 0, 0, together == 2
    for run = 1, runs do
      local n = plan and plan[at + 1] or 1
      local s, failure = open(run)
      if failure then return failure end
      local slot = { raw = s }
      for i = 1, n do
        local ask = asks[plan and plan[at + 1 + i] or 1]
        complete(ask)
        local why
        if not slot.f then
          slot.f, why = read(s, ask)
          if not slot.f then return { err = 'TIDEGATE the key ' .. why } end
        end
        local admitted, kept, mask = enter(ask, slot.f, s, true)
        if kept then slot.kept, slot.ask = kept, ask end
        if not admitted then
          refused[#refused + 1] = entry + i + mask
          if not ask.shadow then falls = true end
        end
        order[entry + i] = { slot = slot, ask = ask, admitted = admitted }
      end
      held[run] = slot
      entry, at = entry + n, at + n + 1
    end
    for run = 1, runs do
      local slot, base = held[run], (run - 1) * stride
      local s, kept, ask = slot.raw, slot.kept, slot.ask
      if stride == 3 then keys.log, keys.journal = KEYS[base + 2], KEYS[base + 3] end
      if falls or asks_only then
        kept, keys.after = nil, {}
      elseif kept then
        s = write(kept, ask)
      end
      for _, item in ipairs(order) do
        if item.slot == slot and not item.admitted and not asks_only then
          local f = refuse(item.ask, s, (read(s, item.ask).blocked or 0) > now)
          if f then s, kept, ask = write(f, item.ask), f, item.ask end
        end
      end
      if kept then
        local failure = store(KEYS[base + 1], s, ends_of(kept, ask))
        if failure then return failure end
      end
      for i, item in ipairs(order) do
        if item.slot == slot then
          if item.ask.journal > 0 and not asks_only then note(item.ask, item.admitted and not falls) end
          out[i + 2] = told(item.ask, s)
        end
      end
    end
  end

  return serve, serve_together
end
