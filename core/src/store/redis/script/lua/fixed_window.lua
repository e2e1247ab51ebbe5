-- fixed-window. Fields: opened, used (0: no window is open).
if algorithm == FIXED_WINDOW then
  local function admits(value, first, now, cost, limit)
    if now >= value[first] + limit.period then value[first + 1] = 0 end
    return value[first + 1] + cost <= limit.count
  end
  local function charge(value, first, now, cost, limit)
    if value[first + 1] == 0 then value[first] = now end
    local used = value[first + 1] + cost
    value[first + 1] = used < MAX and used or MAX
    return value[first] + limit.period
  end
  local function possible(value, first, latest, limit)
    return value[first] <= latest and value[first + 1] <= MAX
  end
  if check_only then return admits, charge end
  local function refund(value, first, now, cost, limit)
    admits(value, first, now, 0, limit)
    local used = value[first + 1]
    local units = cost < used and cost or used
    value[first + 1] = used - units
    if used == units then value[first] = 0 end
    return units
  end
  local function ends(value, first, limit) return value[first + 1] == 0 and 0 or value[first] + limit.period end
  return admits, charge, possible, refund, ends
end
