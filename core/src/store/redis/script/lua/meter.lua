-- What the three buckets share: a meter that drains one unit every emission interval, limit.period / limit.x µs in lowest
-- terms; `whole` says that limit.x is 1. limit.count: the burst. limit.y: the most units that a meter holds.
-- Fields: since, units and, where the interval is no whole number of µs, the fraction of `since` in parts of limit.x.
local admits, charge, possible, refund, ends, drained_at, raise
if algorithm == TOKEN_BUCKET or algorithm == GCRA or algorithm == LEAKY_BUCKET then
  local drain, drained
  if not whole then
    -- floor(a * b / p) and what is left over, exactly: long division in digits of base 8 (p < 2^49, b < 2^54).
    local function divided(a, b, p)
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
    -- Whole units drained between `since` and `now`, exactly as far as `units` of them, and what is left over in parts of
    -- a µs (limit.x of them).
    function drained(value, first, now, units, limit)
      local micros, parts_per_micro, elapsed = limit.period, limit.x, now - value[first]
      if elapsed < 0 then return 0, 0 end
      local fraction = value[first + 2]
      if units * micros <= MAX then
        local parts = elapsed * parts_per_micro - fraction
        if parts < 0 then return 0, 0 end
        local gone = floor(parts / micros)
        return gone, parts - gone * micros
      end
      local gone, rest, whole = divided(elapsed, parts_per_micro, micros)
      gone = gone + whole * parts_per_micro
      if rest < fraction then
        local lent = ceil((fraction - rest) / micros)
        gone, rest = gone - lent, rest + lent * micros
      end
      if gone < 0 then return 0, 0 end
      return gone, rest - fraction
    end
    -- Brings a meter that holds `units` to `now`.
    function drain(value, first, now, units, limit)
      local gone, rest = drained(value, first, now, units, limit)
      if gone >= units then
        value[first], value[first + 1], value[first + 2] = now, 0, 0
      elseif gone > 0 then
        local whole = floor(rest / limit.x)
        rest = rest - whole * limit.x
        value[first + 1] = units - gone
        if rest == 0 then
          value[first], value[first + 2] = now - whole, 0
        else
          value[first], value[first + 2] = now - whole - 1, limit.x - rest
        end
      end
    end
    -- The first whole µs at which `units` units have drained since the stored moment.
    function drained_at(value, first, units, limit)
      local micros, parts_per_micro = limit.period, limit.x
      if units * micros <= MAX then
        return value[first] + ceil((units * micros + value[first + 2]) / parts_per_micro)
      end
      local quotient, rest, whole = divided(micros, units, parts_per_micro)
      return value[first] + quotient + whole * units + ceil((rest + value[first + 2]) / parts_per_micro)
    end
  end
  if whole then
    function admits(value, first, now, cost, limit)
      local since, units = value[first], value[first + 1]
      local gone = floor((now - since) / limit.period)
      if gone >= units then
        value[first], value[first + 1] = now, 0
      elseif gone > 0 then
        value[first], value[first + 1] = since + gone * limit.period, units - gone
      end
      return value[first + 1] + cost <= limit.count
    end
    function charge(value, first, now, cost, limit)
      local units = value[first + 1] + cost
      if units > limit.y then units = limit.y end
      value[first + 1] = units
      return value[first] + units * limit.period
    end
    function possible(value, first, latest, limit)
      return value[first] <= latest and value[first + 1] <= limit.y
    end
  else
    function admits(value, first, now, cost, limit)
      local units = value[first + 1]
      if units > 0 then
        drain(value, first, now, units, limit)
      else
        if now > value[first] then value[first] = now end
        value[first + 2] = 0
      end
      return value[first + 1] + cost <= limit.count
    end
    function charge(value, first, now, cost, limit)
      local units = value[first + 1] + cost
      if units > limit.y then units = limit.y end
      value[first + 1] = units
      return drained_at(value, first, units, limit)
    end
    function possible(value, first, latest, limit)
      return value[first] <= latest and value[first + 1] <= limit.y and value[first + 2] < limit.x
    end
  end
  if check_only then return admits, charge, not whole and possible end
  function refund(value, first, now, cost, limit)
    admits(value, first, now, 0, limit)
    local units = cost < value[first + 1] and cost or value[first + 1]
    value[first + 1] = value[first + 1] - units
    return units
  end
  -- Brings a meter, which is at `now`, to a level that takes at least `life` to drain.
  function raise(value, first, now, life, limit)
    local gone
    if whole then
      gone = floor((now + life - value[first]) / limit.period)
    else
      gone = drained(value, first, now + life, MAX, limit)
    end
    gone = gone < 0 and 1 or gone + 1
    if gone > limit.y then gone = limit.y end
    if value[first + 1] < gone then value[first + 1] = gone end
  end
  function ends(value, first, limit)
    local units = value[first + 1]
    if units == 0 then return 0 end
    return whole and value[first] + units * limit.period or drained_at(value, first, units, limit)
  end
end
