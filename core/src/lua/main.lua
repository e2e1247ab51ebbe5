-- The call: reads the asks, runs the entries, writes what changed.

local now, stride, together, asked, runs = unpack_('<dBBHH', ARGV[1])
if now < 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
local keys = { after = {} }

local function parse(s)
  local op, flags, n, slots, cost, block, hold, journal, keep, at = unpack_('<BBBBdddHd', s)
  local ask = {
    op = op, shadow = flags % 2 == 1, charges = floor(flags / 2) % 2 == 1, births = floor(flags / 4) % 2 == 1,
    cost = cost, block = block, hold = hold, journal = journal, keep = keep, slots = slots, limits = {},
  }
  ask.header, ask.full_header, ask.format, ask.full_format, ask.size, at =
    unpack_('<Bc0Bc0Bc0Bc0H', s, at)
  ask.blank = ask.header .. string.rep('\0', ask.size - #ask.header)
  ask.slow = ask.charges or op ~= 1
  local made = {}
  for i = 1, n do
    local algorithm, o, fields, counts, list, L = nil, nil, nil, nil, nil, {}
    algorithm, o, fields, counts, list, L.id, L.k, L.w, L.n, L.p, L.d, L.x, L.y, at =
      unpack_('<BBBBBBc0Bc0dddddd', s, at)
    local four = made[algorithm] or rules[algorithm](keys)
    made[algorithm] = four
    L.ask, L.add, L.take, L.ends, L.birth, L.digest, L.renew, L.close = values(four, 1, 8)
    L.id, L.o, L.fields, L.counts = algorithm .. L.id, o, fields, counts
    if list > 0 then
      L.s = list
      ask.lists = ask.lists or {}
      ask.lists[#ask.lists + 1] = L
    end
    if L.digest then ask.digests = true end
    ask.limits[i] = L
  end
  ask.meta = sub(s, at)
  return ask
end

local asks = {}
for i = 1, asked do asks[i] = parse(ARGV[2 + i]) end

-- What a refusal changes: nothing, unless the policy says so. Returns the value to store, if any.
local function refuse(ask, s, blocked)
  if not (ask.births or ask.charges or ask.block > 0) then return nil end
  local f, changed = decode(s, ask), false
  for _, L in ipairs(ask.limits) do
    if ask.charges then
      L.add(f, L.o, now, ask.cost, L, ask.hold)
      changed = true
    elseif L.birth and not blocked and L.birth(f, L.o, now, L) then
      changed = true
    end
  end
  if ask.block > 0 and not blocked then
    f.slow, f.blocked, changed = true, now + ask.block, true
  end
  return changed and f or nil
end

-- Operations besides check and peek, by number: each changes `f` and returns whether it applied.
local operations = {
  [3] = function(ask, f) -- charge
    for _, L in ipairs(ask.limits) do L.add(f, L.o, now, ask.cost, L) end
    return true
  end,
  [4] = function(ask, f) -- refund
    for _, L in ipairs(ask.limits) do L.take(f, L.o, now, ask.cost, L) end
    return true
  end,
  [5] = function(ask, f) -- block until then; 0 is unblock
    f.slow, f.blocked = true, ask.block > 0 and now + ask.block or 0
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
}

-- Runs one entry on a decoded value: whether it was admitted, and the decoded value to store, if any. With `apart`
-- a refusal is left for later.
local function enter(ask, f, s, apart)
  local op = ask.op
  if op > 2 then
    local applied = operations[op](ask, f)
    if applied then return true, f end
    return false, nil
  end
  local limits, cost, ends = ask.limits, ask.cost, 0
  local blocked = f.blocked
  if blocked and blocked > now then
    if op == 2 then return false, nil end
    return false, not apart and refuse(ask, s, true) or nil
  end
  for i = 1, #limits do
    local L = limits[i]
    if not L.ask(f, L.o, now, cost, L) then
      if op == 2 then return false, nil end
      return false, not apart and refuse(ask, s, false) or nil
    end
  end
  if op == 2 then return true, nil end
  if blocked then f.blocked = 0 end
  for i = 1, #limits do
    local L = limits[i]
    local limit_ends = L.add(f, L.o, now, cost, L, ask.hold)
    if limit_ends > ends then ends = limit_ends end
  end
  f.ends = ends
  return true, f
end

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
  local entry = pack('<ddB', now, ask.cost, admitted and 1 or 0) .. ask.meta
  call('LPUSH', keys.journal, entry)
  call('LTRIM', keys.journal, 0, ask.journal - 1)
  call('PEXPIRE', keys.journal, ask.keep)
end

-- The value as the caller can read it: in this policy's layout, with what only the script can tell of a log.
local function told(ask, s)
  local f = decode(s, ask)
  if f.slow then s = encode(f, ask) end
  for _, L in ipairs(ask.limits) do
    if L.digest then s = s .. L.digest(f, L.o, now, ask.cost, L) end
  end
  return s
end

local out, refused = { now, false }, {}
out[2] = refused

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
    local slot = entry + i + 2
    local op = ask.op
    if failure then
      out[slot] = failure
    elseif op == 8 then -- clear
      s, f, changed = '', nil, false
      call('DEL', key, stride == 3 and keys.log or key)
      out[slot] = ''
    elseif op == 9 then -- journal
      out[slot] = call('LRANGE', keys.journal, 0, -1)
    else
      local why
      if ask ~= last or not f then f, why = decode(s, ask) end
      last = ask
      if not f then
        out[slot] = { err = 'TIDEGATE the key ' .. why }
      else
        local slow = f.slow
        local admitted, kept = enter(ask, f, s)
        if kept then
          s = encode(kept, ask)
          ends = kept.ends or ends_of(kept, ask)
          if kept.blocked and kept.blocked > ends then ends = kept.blocked end
          kept.ends, changed = nil, true
          if kept ~= f then f = nil end
        end
        if not admitted then refused[#refused + 1] = entry + i end
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

-- All entries stand or fall together: nothing is written before every one was asked.
local function serve_together(plan)
  local held, order, open_refused, entry, at = {}, {}, false, 0, 0
  for run = 1, runs do
    local n = plan and plan[at + 1] or 1
    local s, failure = open(run)
    if failure then return failure end
    local slot = { run = run, raw = s, at = entry }
    for i = 1, n do
      local ask = asks[plan and plan[at + 1 + i] or 1]
      local why
      if not slot.f then
        slot.f, why = decode(s, ask)
        if not slot.f then return { err = 'TIDEGATE the key ' .. why } end
      end
      local admitted, kept = enter(ask, slot.f, s, true)
      if kept then slot.kept, slot.ask = kept, ask end
      if not admitted then
        refused[#refused + 1] = entry + i
        if not ask.shadow then open_refused = true end
      end
      order[entry + i] = { slot = slot, ask = ask, admitted = admitted }
    end
    held[run] = slot
    entry, at = entry + n, at + n + 1
  end
  for run = 1, runs do
    local slot = held[run]
    local s, key = slot.raw, KEYS[(run - 1) * stride + 1]
    if stride == 3 then keys.log, keys.journal = KEYS[(run - 1) * stride + 2], KEYS[(run - 1) * stride + 3] end
    local kept, ask = slot.kept, slot.ask
    if open_refused then kept = nil end
    local changed = false
    if kept then
      s, changed = encode(kept, ask), true
    end
    for _, item in ipairs(order) do
      if item.slot == slot and not item.admitted then
        local f = refuse(item.ask, s, (decode(s, item.ask).blocked or 0) > now)
        if f then
          s, kept, ask, changed = encode(f, item.ask), f, item.ask, true
        end
      end
    end
    if changed then
      local failure = store(key, s, ends_of(kept, ask))
      if failure then return failure end
    end
    for i, item in ipairs(order) do
      if item.slot == slot then
        if item.ask.journal > 0 then note(item.ask, item.admitted and not open_refused) end
        out[i + 2] = told(item.ask, s)
      end
    end
  end
end

local plan = ARGV[2] ~= '' and { unpack_('<' .. string.rep('H', #ARGV[2] / 2), ARGV[2]) } or nil
if together == 1 then
  local failure = serve_together(plan)
  if failure then return failure end
  return out
end
local entry, at = 0, 0
for run = 1, runs do
  local n = plan and plan[at + 1] or 1
  if stride == 1 then
    serve(run, entry, n, plan, at + 1)
  else
    keys.after = {}
    local fine, why = pcall(serve, run, entry, n, plan, at + 1)
    if not fine then
      for i = 1, n do out[entry + i + 2] = { err = type(why) == 'table' and why.err or tostring(why) } end
    end
  end
  entry, at = entry + n, at + n + 1
end
return out
