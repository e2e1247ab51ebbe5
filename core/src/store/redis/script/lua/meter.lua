-- The three buckets: a meter that drains one unit every emission interval, which is period / parts µs in lowest terms.
-- token-bucket: of missing tokens, of which so many are missing when a bucket starts. gcra: empty at the theoretical arrival time.
-- leaky-bucket: of the units in the queue; Rust derives the delay from the value. count: the burst; most: the most units that a
-- meter holds. Where the interval is no whole number of µs there is a third field, the fraction of `since` in parts of a µs.
--[[ algorithms: GCRA, TOKEN_BUCKET, LEAKY_BUCKET ]]
--[[ fields: since, units, fraction ]]
--[[ numbers: count, period, parts, most, missing ]]
--[[ used ]]
units
--[[ methods ]]
function rule:ends(value)
  if units == 0 then return 0 end
  return parts == 1 and since + units * period or drained_at(since, fraction, units, period, parts)
end
function rule:unused(value) return (algorithm == TOKEN_BUCKET and since or units) == 0 end
--[[ more methods ]]
function rule:refund(value, cost)
  -- Nothing was charged to a bucket that has not started: a refund must not fill it.
  if self.start and since == 0 then return 0 end
  self:advance(value)
  local returned = min(cost, units)
  units = units - returned
  return returned
end
function rule:undo(value, cost, charge)
  if self.start and since == 0 then return 0 end
  -- Up to 2^51 doubles round a quotient as it is rounded exactly.
  local function passed(time)
    local drained_parts = time > 0 and time * parts or 0
    if drained_parts > 2251799813685248 then return nil end
    local whole = floor(drained_parts / period)
    return whole, drained_parts - whole * period
  end
  local waiting = passed(charge.empty_at - (parts > 1 and 1 or 0) - now) or 0
  waiting = max(waiting - charge.refunded, 0)
  local gone, rest = passed(now - charge.at - charge.life)
  if not gone then return 0 end
  -- Refunds have left it alone while as much waits as it charged: they took what stood ahead.
  local taken = min(max(charge.charged, cost) - waiting, taken_by_refunds(cost, charge))
  if taken > 0 and not charge.undone then cost = cost - taken end
  local own = max(cost - gone, 0)
  if waiting >= own then
    cost = min(cost, waiting)
    return cost == 0 and 0 or self:refund(value, cost)
  end
  -- Without the charge the bucket might have been empty since then. What is left may have come later by the part of a unit that
  -- has drained, but not later than now.
  local returned = self:refund(value, own)
  if since < now then
    since = since + ceil(rest / parts)
    if since >= now then
      since = now
      if parts > 1 then fraction = 0 end
    end
  end
  return returned
end
-- The first moment, not before `now`, at which a meter that is at `now` admits `cost`.
function rule:admits_at(value, cost)
  local level = units + cost
  if cost > count or level > most then return math.huge end
  if level <= count then return now end
  if parts == 1 then return since + (level - count) * period end
  return drained_at(since, fraction, level - count, period, parts)
end
-- Brings a meter, which is at `now`, to a level that is not empty before a moment: exactly then, where it was empty earlier.
function rule:fill(value, moment)
  local filled, rest
  if parts == 1 then
    filled = ceil((moment - since) / period)
    if filled > units then since, units = max(moment - filled * period, 0), filled end
    return
  end
  filled, rest = drained(moment - since, fraction, MAX, period, parts)
  if rest > 0 then filled = filled + 1 end
  if filled <= units then return end
  local whole, last = span(filled, period, parts)
  since, units, fraction = moment - whole, filled, 0
  if last > 0 then since, fraction = since - 1, parts - last end
end
-- Brings a meter, which is at `now`, to a level that takes at least `life` to drain.
if algorithm ~= LEAKY_BUCKET then
  function rule:raise(value, life)
    local gone = parts == 1 and floor((now + life - since) / period)
      or drained(now + life - since, fraction, MAX, period, parts)
    gone = gone < 0 and 1 or gone + 1
    units = max(units, min(gone, most))
  end
end
--[[ when: parts == 1 ]]
--[[ fields: since, units ]]
--[[ advance ]]
local gone = floor((now - since) / period)
if gone >= units then
  since, units = now, 0
elseif gone > 0 then
  since, units = since + gone * period, units - gone
end
--[[ possible ]]
since <= LATEST and units <= most
--[[ charge ]]
local level = units + cost
if level > most then level = most end
units = level
ends = since + level * period
--[[ when: parts > 1 ]]
--[[ helpers: divided, drained, span, drained_at ]]
-- floor(a * b / p) and what is left over, exactly: long division in digits of base 8 (p < 2^49, b < 2^54).
function divided(a, b, p)
  local whole = floor(a / p)
  a = a - whole * p
  local quotient, rest, power = 0, 0, 8 ^ 17
  while power >= 1 do
    local digit = floor(b / power)
    b = b - digit * power
    rest = rest * 8 + digit * a
    local part = floor(rest / p)
    quotient, rest, power = quotient * 8 + part, rest - part * p, power / 8
  end
  return quotient, rest, whole
end
-- Whole units drained in a time that began a fraction of a µs later, exactly as far as `level` of them, and what is left over in
-- parts of a µs.
function drained(elapsed, late, level, micros, each)
  if elapsed < 0 then return 0, 0 end
  if level * micros <= MAX then
    local rest = elapsed * each - late
    if rest < 0 then return 0, 0 end
    local gone = floor(rest / micros)
    return gone, rest - gone * micros
  end
  local gone, rest, whole = divided(elapsed, each, micros)
  gone = gone + whole * each
  if rest < late then
    local lent = ceil((late - rest) / micros)
    gone, rest = gone - lent, rest + lent * micros
  end
  if gone < 0 then return 0, 0 end
  return gone, rest - late
end
-- How long `level` units take to drain: whole µs, and what is left over in parts of a µs.
function span(level, micros, each)
  if level * micros <= MAX then
    local whole = floor(level * micros / each)
    return whole, level * micros - whole * each
  end
  local quotient, rest, whole = divided(micros, level, each)
  return quotient + whole * level, rest
end
-- The first whole µs at which `level` units have drained since a moment and its fraction.
function drained_at(moment, late, level, micros, each)
  if level * micros <= MAX then return moment + ceil((level * micros + late) / each) end
  local quotient, rest, whole = divided(micros, level, each)
  return moment + quotient + whole * level + ceil((rest + late) / each)
end
--[[ advance ]]
if units > 0 then
  local gone, rest = drained(now - since, fraction, units, period, parts)
  if gone >= units then
    since, units, fraction = now, 0, 0
  elseif gone > 0 then
    local whole = floor(rest / parts)
    rest = rest - whole * parts
    units = units - gone
    if rest == 0 then
      since, fraction = now - whole, 0
    else
      since, fraction = now - whole - 1, parts - rest
    end
  end
else
  if now > since then since = now end
  fraction = 0
end
--[[ possible ]]
since <= LATEST and units <= most and fraction < parts
--[[ charge ]]
local level = units + cost
if level > most then level = most end
units = level
ends = drained_at(since, fraction, level, period, parts)
--[[ when: missing > 0 ]]
--[[ methods ]]
-- A token bucket that does not start full. Its key is kept for a grace period after its value has ended (stored_form.lua).
function rule:start(value)
  if since > 0 then return false end
  since, units = now, missing
  if parts > 1 then fraction = 0 end
  return true
end
local advance = rule.advance
function rule:advance(value)
  self:start(value)
  advance(self, value)
end
-- It has not ended before it is full.
local ends = rule.ends
function rule:ends(value)
  if units > 0 then return ends(self, value) end
  return parts > 1 and fraction > 0 and since + 1 or since
end
