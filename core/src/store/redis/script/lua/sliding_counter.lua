-- sliding-counter: the units of the current window and of the one before it, as of a moment.
--[[ algorithms: SLIDING_COUNTER ]]
--[[ fields: touched, previous, current ]]
--[[ numbers: count, period ]]
--[[ helpers: scaled, counted_until ]]
-- floor(a * b / p), exactly, also where a * b passes 2^53: long division in digits of base 8 (b <= p < 2^49).
function scaled(a, b, p)
  if a * b <= MAX then return floor(a * b / p) end
  local quotient, rest, power = 0, 0, 8 ^ 17
  while power >= 1 do
    local digit = floor(a / power)
    a = a - digit * power
    rest = rest * 8 + digit * b
    local part = floor(rest / p)
    quotient, rest, power = quotient * 8 + part, rest - part * p, power / 8
  end
  return quotient
end
function counted_until(moment, older, newer, p)
  local start, counted = moment - moment % p, older
  if newer > 0 then start, counted = start + p, newer end
  return counted == 0 and 0 or start + p - floor((p - 1) / counted)
end
--[[ advance ]]
local at = now < touched and touched or now
local windows = floor(at / period) - floor(touched / period)
if windows == 1 then
  previous, current = current, 0
elseif windows > 1 then
  previous, current = 0, 0
end
touched = at
--[[ used ]]
scaled(previous, period - touched % period, period) + current
--[[ possible ]]
touched <= LATEST and previous <= MAX and current <= MAX
--[[ charge ]]
local after_charge = current + cost
current = after_charge < MAX and after_charge or MAX
ends = counted_until(touched, previous, current, period)
--[[ methods ]]
function rule:unused(value) return previous == 0 and current == 0 end
function rule:ends(value) return counted_until(touched, previous, current, period) end
-- It weighs whole windows.
function rule:charges_end(value)
  local windows = current > 0 and 2 or previous > 0 and 1 or 0
  return windows > 0 and touched - touched % period + windows * period or 0
end
--[[ more methods ]]
-- Brings it to the time; units of the previous window that weigh nothing any more are gone.
local function settle(self, value)
  self:advance(value)
  if self:used(value) == current then previous = 0 end
end
function rule:refund(value, cost)
  settle(self, value)
  local older = min(cost, previous)
  local newer = min(cost - older, current)
  previous, current = previous - older, current - newer
  if previous == 0 and current == 0 then touched = 0 end
  return older + newer
end
function rule:undo(value, cost, charge)
  self:advance(value)
  local windows, own = floor(touched / period) - floor(charge.at / period), 0
  if windows ~= 0 and windows ~= 1 then return 0 end
  settle(self, value)
  if windows == 0 then
    own = left_of(cost, current, previous > 0, charge)
    current = current - own
  else
    own = left_of(cost, previous, false, charge)
    previous = previous - own
  end
  return with_oldest(self, value, cost, own, charge)
end
