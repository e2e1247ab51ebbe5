-- calendar-window. Fields: index, used. limit.period: the length of a window, of which one begins limit.y before 1970;
-- or 0 for windows of limit.x real months.
if algorithm == CALENDAR_WINDOW then
  local DAY, MONTH = 86400000000, 2629746000000
  -- Years are taken to begin in March, so that the leap day is the last of its year.
  local function month_of(day)
    day = day + 719468
    local era = floor(day / 146097)
    local day_of_era = day - era * 146097
    local leap_days = floor(day_of_era / 1460) - floor(day_of_era / 36524) + floor(day_of_era / 146096)
    local year_of_era = floor((day_of_era - leap_days) / 365)
    local day_of_year = day_of_era - (365 * year_of_era + floor(year_of_era / 4) - floor(year_of_era / 100))
    return (era * 400 + year_of_era) * 12 + floor((5 * day_of_year + 2) / 153) + 2 - 23640
  end
  local function day_of(month)
    month = month + 23638
    local year = floor(month / 12)
    month = month - year * 12
    local era = floor(year / 400)
    local year_of_era = year - era * 400
    local day_of_era = 365 * year_of_era + floor(year_of_era / 4) - floor(year_of_era / 100) + floor((153 * month + 2) / 5)
    return era * 146097 + day_of_era - 719468
  end
  -- The first moment after a window.
  local function end_of(index, length, months, shift)
    index = index + 1
    return length > 0 and index * length - shift or day_of(index * months) * DAY
  end
  local function admits(value, first, now, cost, limit)
    local length = limit.period
    local index = length > 0 and floor((now + limit.y) / length) or floor(month_of(floor(now / DAY)) / limit.x)
    if value[first + 1] == 0 or index > value[first] then value[first], value[first + 1] = index, 0 end
    return value[first + 1] + cost <= limit.count
  end
  local function charge(value, first, now, cost, limit)
    local used = value[first + 1] + cost
    value[first + 1] = used < MAX and used or MAX
    return end_of(value[first], limit.period, limit.x, limit.y)
  end
  -- A month begins at most four days earlier than months of equal lengths would.
  local function possible(value, first, latest, limit)
    local start = limit.period > 0 and value[first] * limit.period - limit.y or value[first] * limit.x * MONTH - 4 * DAY
    return start <= latest and value[first + 1] <= MAX
  end
  if check_only then return admits, charge, possible end
  local function refund(value, first, now, cost, limit)
    admits(value, first, now, 0, limit)
    local used = value[first + 1]
    local units = cost < used and cost or used
    value[first + 1] = used - units
    if used == units then value[first] = 0 end
    return units
  end
  local function ends(value, first, limit)
    return value[first + 1] == 0 and 0 or end_of(value[first], limit.period, limit.x, limit.y)
  end
  return admits, charge, possible, refund, ends
end
