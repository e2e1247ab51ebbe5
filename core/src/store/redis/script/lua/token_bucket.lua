-- token-bucket: a meter of missing tokens. limit.z: the tokens that are missing when a bucket starts. A key with such a
-- bucket is kept for a grace period after its value has ended (stored_form.lua).
if algorithm == TOKEN_BUCKET then
  if not initial then return admits, charge, possible, refund, ends, nil, nil, nil, nil, nil, raise end
  local function start(value, first, now, limit)
    if value[first] > 0 then return false end
    value[first], value[first + 1] = now, limit.z
    if not whole then value[first + 2] = 0 end
    return true
  end
  -- Such a bucket has not ended before it is full.
  local function full_at(value, first, limit)
    if value[first] == 0 then return 0 end
    return whole and value[first] + value[first + 1] * limit.period or drained_at(value, first, value[first + 1], limit)
  end
  return function(value, first, now, cost, limit)
    start(value, first, now, limit)
    return admits(value, first, now, cost, limit)
  end, charge, possible, function(value, first, now, cost, limit)
    -- Nothing was charged to a bucket that has not started: a refund must not fill it.
    return value[first] > 0 and refund(value, first, now, cost, limit) or 0
  end, full_at, start, nil, nil, nil, nil, raise
end
