-- calendar-window. Fields: index, used. L.p: length of a window, or 0 and L.d real months; L.x: shift.
if algorithm == 2 then
  -- Years are taken to begin in March, so that the leap day is the last of its year.
  local function month_of(day)
    day = day + 719468
    local era = floor(day / 146097)
    local doe = day - era * 146097
    local yoe = floor((doe - floor(doe / 1460) + floor(doe / 36524) - floor(doe / 146096)) / 365)
    local doy = doe - (365 * yoe + floor(yoe / 4) - floor(yoe / 100))
    return (era * 400 + yoe) * 12 + floor((5 * doy + 2) / 153) + 2 - 23640
  end
  local function day_of(month)
    month = month + 23638
    local year = floor(month / 12)
    month = month - year * 12
    local era = floor(year / 400)
    local yoe = year - era * 400
    return era * 146097 + 365 * yoe + floor(yoe / 4) - floor(yoe / 100) + floor((153 * month + 2) / 5) - 719468
  end
  local function ask(f, o, t, c, L)
    local index = L.p > 0 and floor((t + L.x) / L.p) or floor(month_of(floor(t / 86400000000)) / L.d)
    if f[o + 1] == 0 or index > f[o] then f[o], f[o + 1] = index, 0 end
    return f[o + 1] + c <= L.n
  end
  local function ends(f, o, L)
    if f[o + 1] == 0 then return 0 end
    local index = f[o] + 1
    return L.p > 0 and index * L.p - L.x or day_of(index * L.d) * 86400000000
  end
  local function add(f, o, t, c, L)
    local used = f[o + 1] + c
    f[o + 1] = used < MAX and used or MAX
    return ends(f, o, L)
  end
  local function take(f, o, t, c, L)
    ask(f, o, t, 0, L)
    local used = f[o + 1] - c
    if used <= 0 then f[o], used = 0, 0 end
    f[o + 1] = used
  end
  return ask, add, take, ends
end
