-- sliding-counter. Fields: touched, previous, current.
if algorithm == SLIDING_COUNTER then
  -- floor(a * b / p), exactly, also where a * b passes 2^53: long division in digits of base 8 (b <= p < 2^49).
  local function scaled(a, b, p)
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
  local function counted_until(touched, previous, current, p)
    local start, counted = touched - touched % p, previous
    if current > 0 then start, counted = start + p, current end
    return counted == 0 and 0 or start + p - floor((p - 1) / counted)
  end
  local function admits(value, first, now, cost, limit)
    local p, touched = limit.period, value[first]
    local at = now < touched and touched or now
    local windows = floor(at / p) - floor(touched / p)
    if windows == 1 then
      value[first + 1], value[first + 2] = value[first + 2], 0
    elseif windows > 1 then
      value[first + 1], value[first + 2] = 0, 0
    end
    value[first] = at
    return scaled(value[first + 1], p - at % p, p) + value[first + 2] + cost <= limit.count
  end
  local function charge(value, first, now, cost, limit)
    local current = value[first + 2] + cost
    value[first + 2] = current < MAX and current or MAX
    return counted_until(value[first], value[first + 1], value[first + 2], limit.period)
  end
  local function possible(value, first, latest, limit)
    return value[first] <= latest and value[first + 1] <= MAX and value[first + 2] <= MAX
  end
  if check_only then return admits, charge end
  local function refund(value, first, now, cost, limit)
    admits(value, first, now, 0, limit)
    local p, previous, current = limit.period, value[first + 1], value[first + 2]
    -- Units that weigh nothing any more are gone.
    if scaled(previous, p - value[first] % p, p) == 0 then previous = 0 end
    local older = cost < previous and cost or previous
    local newer = cost - older < current and cost - older or current
    value[first + 1], value[first + 2] = previous - older, current - newer
    if older == previous and newer == current then value[first] = 0 end
    return older + newer
  end
  local function ends(value, first, limit)
    return counted_until(value[first], value[first + 1], value[first + 2], limit.period)
  end
  local function used(value, first, limit)
    local p = limit.period
    return scaled(value[first + 1], p - value[first] % p, p) + value[first + 2]
  end
  return admits, charge, possible, refund, ends, nil, nil, nil, nil, used
end
