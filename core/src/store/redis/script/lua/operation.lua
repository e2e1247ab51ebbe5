-- The operations on a decoded value. TAKE is a check of as many units as there are, SURCHARGE what work has cost beyond its check,
-- LEASE takes units that are spent later, TURN charges as of a later moment, GIVE_BACK gives back units of one charge. CLEAR and JOURNAL are in slow_path.lua.

-- Of each algorithm: whether its charges have to know that units went back, by a plain refund or by another charge's.
local COUNTED, COUNTED_BY_DECISION = COUNTS_REFUNDS, COUNTS_UNDONE

-- Gives units back by a function for each limit, which returns how many, and leaves the traces that other charges need: of
-- buckets, and of sliding kinds where no Decision says whose units went back. `used_at` is when the units were to be used, of those of
-- a Decision. While turns are to come, buckets give back only to the last one: what stands behind the others has its moment.
local function returned(instruction, value, used_at, back)
  local by_decision, has_turns = used_at, value.turns_until and value.turns_until ~= used_at
  local ends, counted = latest('charges_end', value, instruction), 0
  for index, limit in ipairs(instruction.limits) do
    local units, algorithm = has_turns and limit.fill and 0 or back(limit, index), limit.algorithm
    if (by_decision and COUNTED_BY_DECISION or COUNTED)[algorithm] and units > counted then counted = units end
  end
  if counted == 0 then return end
  local traces = value.traces or { cleared = 0, refunded_at = 0, since = 0, refunded = 0, ends = 0 }
  value.traces = traces
  if ends > traces.ends then traces.ends = ends end
  if not by_decision then traces.refunded_at = now end
  if traces.refunded == 0 then traces.since = now end
  traces.refunded = min(traces.refunded + counted, MAX)
  -- All had ended before.
  if traces.ends <= now then value.traces = nil end
end

-- Charges a call to what was learned of the key, if anything was, or is to be.
local function charge_learned(instruction, value, cost, moment)
  if value.learned or instruction.learns then learned_of().charge(value, instruction, cost, moment) end
end

-- Of a surcharge a concurrency limit, which has `renew`, counts only where it is alone.
local function charge(instruction, value)
  local rates = false
  for _, limit in ipairs(instruction.operation == SURCHARGE and instruction.limits or {}) do rates = rates or not limit.renew end
  for _, limit in ipairs(instruction.limits) do
    if not (rates and limit.renew) then
      local units = limit.units or instruction.cost
      if units > 0 then
        limit:advance(value)
        limit:charge(value, units)
      end
    end
  end
  if instruction.operation == CHARGE then charge_learned(instruction, value, instruction.cost, now) end
  return true
end

-- Calls `renew` or `close` of each limit that has holds.
local function change_hold(instruction, value)
  local found, method = false, instruction.operation == RENEW and 'renew' or 'close'
  for _, limit in ipairs(instruction.limits) do
    found = limit[method] and limit[method](limit, value, instruction.hold) ~= nil or found
  end
  return found
end

-- Forgets a block that is over, unless the next one depends on it.
local function end_block(instruction, value)
  if value.blocked_until and level_ends(value, instruction) <= now then value.blocked_until, value.block_level = 0, 0 end
end

-- Begins a block that no denial has begun. The level stays, and is marked as that of a block by hand.
local function block_by_hand(instruction, value)
  local level = value.block_level or 0
  level = level_ends(value, instruction) > now and level % 128 > 0 and level % 128 + 128 or 0
  value.blocked_until, value.block_level = now + instruction.block, level
end

-- Each changes the value and returns whether it applied.
local operations = {
  [CHARGE] = charge,
  [SURCHARGE] = charge,
  [RENEW] = change_hold,
  [CLOSE] = change_hold,
  [REFUND] = function(instruction, value)
    returned(instruction, value, nil, function(limit)
      return limit:refund(value, limit.units or instruction.cost)
    end)
    return true
  end,
  [BLOCK] = function(instruction, value) -- for so long; 0 ends a block
    if instruction.block > 0 then
      block_by_hand(instruction, value)
    elseif value.blocked_until then
      value.blocked_until = min(value.blocked_until, now)
      end_block(instruction, value)
    end
    return true
  end,
  [OBSERVE] = function(instruction, value) -- block: for how long the key waits
    if instruction.block > 0 and now + instruction.block > (value.blocked_until or 0) then block_by_hand(instruction, value) end
    learned_of().observe(instruction, value)
    if learned_of().ends(value.learned) <= now then value.learned = nil end
    learned_of().reserve(value.learned, instruction)
    return true
  end,
  [OVERRIDE] = function(instruction, value) -- block: for how long, 0 for ever; the text is empty for the numbers of the policy
    local text = sub(instruction.text, instruction.meta)
    if text == '' and not value.override then return false end
    value.override = text ~= '' and { text = text, ends = instruction.block > 0 and now + instruction.block or 0 } or nil
    return true
  end,
  [LEAVE] = function(instruction, value)
    return remove_from_line(value, instruction.hold)
  end,
  [GIVE_BACK] = function(instruction, value) -- block: when the units were charged, hold: the life of a lease
    local generation, known, known_clear, charged = unpack_('<dddd', instruction.text, instruction.meta)
    if instruction.is_last then
      for index, limit in ipairs(instruction.limits) do
        local empty_at = unpack_('<d', instruction.text, instruction.meta + 24 + 8 * index)
        if empty_at >= 0 and limit:ends(value) ~= empty_at then return false end
      end
    end
    local charged_at, traces = instruction.block, value.traces or { cleared = 0, refunded_at = 0, since = 0, refunded = 0 }
    if generation > 0 and generation ~= value.generation then return false end
    if traces.cleared >= charged_at and traces.cleared ~= known_clear then return false end
    local refunded = traces.refunded - (traces.since <= charged_at and known or 0)
    local charge = {
      at = charged_at, charged = charged, life = instruction.hold, undone = instruction.undone,
      refunded = refunded > 0 and refunded or 0, refunds_since = traces.refunded_at >= charged_at,
    }
    -- Behind what is the last there is no turn, though one may have been that was given up.
    local used_at = instruction.is_last and value.turns_until or charged_at + instruction.hold
    returned(instruction, value, used_at, function(limit, index)
      charge.empty_at = unpack_('<d', instruction.text, instruction.meta + 24 + 8 * index)
      -- A limit that was not charged.
      if charge.empty_at < 0 then return 0 end
      local units = instruction.cost
      if instruction.amounts then
        units, charge.charged = unpack_('<dd', instruction.text, instruction.meta + 32 + 8 * #instruction.limits + 16 * (index - 1))
      end
      return units > 0 and limit:undo(value, units, charge) or 0
    end)
    return true
  end,
}

-- Begins the block that follows a refusal. Of a policy whose blocks become longer it is the next one.
local function begin_block(instruction, value)
  local level = 0
  if instruction.lengths then
    level = level_ends(value, instruction) > now and value.block_level % 128 or 0
    level = min(level + 1, instruction.levels)
  end
  value.blocked_until, value.block_level = now + (level > 0 and instruction.lengths[level + 1] or instruction.block), level
end

-- What a refusal changes: nothing, unless the policy says so, or a limit has noted what it knows only at its first look. `s` is the
-- stored value. A refusal that is `spared` is not charged and begins no block. Returns the value to store, if any.
local function refuse(instruction, s, blocked, spared)
  if not instruction.refusal_writes and not instruction.has_edges then return nil end
  local value = read(s, instruction)
  local changed = value.adopted
  for _, limit in ipairs(instruction.limits) do
    if instruction.charges_denials and not spared then
      local units = limit.units or instruction.cost
      if units > 0 then
        limit:advance(value)
        limit:charge(value, units, instruction.hold)
      end
      changed = true
    elseif limit.start and not blocked and limit:start(value) then
      changed = true
    end
  end
  if instruction.line then
    join_line(value, instruction.line)
    changed = true
  end
  if instruction.block > 0 and not blocked and not spared then
    begin_block(instruction, value)
    changed = true
  end
  return changed and value or nil
end

-- As many units as every limit has left, at most `most`.
local function left(instruction, value, most)
  for _, limit in ipairs(instruction.limits) do
    limit:advance(value)
    most = min(most, limit.count - limit.reserve - limit.learned - limit:used(value))
  end
  return value.learned and learned_of().left(value.learned, most) or most
end

-- Takes units in advance, at most a quarter of what every limit has left. A unit counts until the last moment at which it can
-- be spent has left the window: docs/adr/0022. Returns what `run` does.
local function lease(instruction, value)
  local life, most = instruction.hold, instruction.cost
  -- What was learned counts calls, and a lease is none.
  if value.learned or value.blocked_until and value.blocked_until > now then return false, nil, 0, 0 end
  for _, limit in ipairs(instruction.limits) do
    limit:advance(value)
    if limit.raise then limit:raise(value, life) end
    most = min(most, floor((limit.count - limit:used(value)) / LEASED_PART))
  end
  if most < 1 then return false, nil, 0, 0 end
  end_block(instruction, value)
  value.generation = value.generation or call_number + 1
  for _, limit in ipairs(instruction.limits) do
    limit:charge(value, most, 0, now + life)
  end
  return true, value, 0, most
end

-- The limits that refuse a call by what was learned alone, by their places, if anything was learned.
local function refusing_learned(instruction, value, cost)
  return value.learned and learned_of().refusing(value.learned, instruction, cost)
end

-- Whether the limits admit a check, and only what must stay free for others, or the line, refuses it.
local function spares(instruction, value)
  if not (instruction.amounts or instruction.line) or value.blocked_until and value.blocked_until > now then return false end
  for _, limit in ipairs(instruction.limits) do
    local units = limit.units or instruction.asked
    if units > 0 and not admits(limit, value, units + limit.learned) then return false end
  end
  local refusing = refusing_learned(instruction, value, instruction.asked)
  return not (refusing and next(refusing))
end

-- Takes a turn: charges every bucket as of the first moment at which all of them admit the call, if that is within `hold` µs.
-- Returns what `run` does, with that moment in place of the units; 0 where the turn is refused.
local function turn(instruction, value, s)
  local blocked = value.blocked_until and value.blocked_until > now
  local moment, mask, cost, refused = blocked and value.blocked_until or now, 0, instruction.cost, false
  local refusing = refusing_learned(instruction, value, cost)
  for i, limit in ipairs(instruction.limits) do
    local units, refuses = limit.units or cost, refusing and refusing[i]
    if units > 0 then
      limit:advance(value)
      local at = limit:admits_at(value, units)
      refuses = refuses or at > now or limit.learned > 0 and not admits(limit, value, units + limit.learned)
      moment = max(moment, at)
    end
    if refuses and instruction.charges_denials then mask = mask + 2 ^ (15 + i) end
    refused = refused or refuses
  end
  -- When others use less is not known, so there are no turns behind it.
  if value.learned and refused or moment - now > instruction.hold then return false, refuse(instruction, s, blocked), mask, 0 end
  if not blocked then end_block(instruction, value) end
  if moment > now then value.turns_until = max(value.turns_until or 0, moment) end
  for _, limit in ipairs(instruction.limits) do
    local units = limit.units or cost
    if units > 0 then
      if moment > now then limit:fill(value, moment) end
      limit:charge(value, units)
    end
  end
  charge_learned(instruction, value, cost, moment)
  return true, value, 0, moment
end

-- Runs one entry on a decoded value. Returns whether it was admitted, the value to store, if any, the limits that refused as
-- bits from 2^16 on, where the value will not show them, and the units that a check has charged. `s` is the stored value. With
-- `defer_refusal` the caller does later what a refusal does.
local function run(instruction, value, s, defer_refusal)
  local operation = instruction.operation
  local change = operations[operation]
  if change then
    if change(instruction, value) then return true, value, 0 end
    return false, nil, 0
  end
  if operation == LEASE then return lease(instruction, value) end
  if operation == TURN then return turn(instruction, value, s) end
  local limits, cost = instruction.limits, instruction.cost
  local blocked = value.blocked_until and value.blocked_until > now
  if operation == TAKE then
    -- Where nothing is left it is a check of one unit, which is refused.
    cost = left(instruction, value, cost)
    if cost < 1 then cost = 1 end
  end
  local hold = instruction.hold
  local admitted, mask = not blocked and not (instruction.line and must_yield(value, instruction.line)), 0
  local ask_all = operation ~= PEEK and (defer_refusal or instruction.charges_denials)
  local refusing = refusing_learned(instruction, value, cost)
  for i = 1, #limits do
    local limit = limits[i]
    local units = limit.units or cost
    local asked = units + limit.reserve + limit.learned
    if (admitted or ask_all) and (refusing and refusing[i] or units > 0 and not admits(limit, value, asked)) then
      admitted = false
      if ask_all then mask = mask + 2 ^ (15 + i) end
    end
  end
  if operation == PEEK then return admitted, nil, 0 end
  if not admitted then
    return false, not defer_refusal and refuse(instruction, s, blocked, spares(instruction, value)) or nil, mask, 0
  end
  end_block(instruction, value)
  if instruction.line then leave_line(value, instruction.line) end
  for i = 1, #limits do
    local limit = limits[i]
    local units = limit.units or cost
    if units > 0 then limit:charge(value, units, hold) end
  end
  charge_learned(instruction, value, cost, now)
  return true, value, 0, cost
end
