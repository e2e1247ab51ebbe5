-- sliding-window. Fields: touched, newest, total, length of the list. limit.x: the length of a granule.
-- The list: '<I7I7' for each granule before the newest, oldest first: its last instant and its units.
if algorithm == SLIDING_WINDOW then
  local function admits(value, first, now, cost, limit)
    local touched, p, granule = value[first], limit.period, limit.x
    local at = now < touched and touched or now
    if touched - touched % granule + granule - 1 + p <= at then
      value[first + 1], value[first + 2], value[limit.list] = 0, 0, ''
    elseif value[limit.list] ~= '' then
      local list, position, used = value[limit.list], 1, value[first + 2]
      repeat
        local last, units, after = unpack_('<I7I7', list, position)
        if last + p > at then
          -- So many units are not possible, which is seen without another look at the list.
          if last > touched then used = MAX + 1 end
          break
        end
        position, used = after, used - units
      until position > #list
      value[first + 2] = used
      if position > 1 then value[limit.list] = sub(list, position) end
    end
    return value[first + 2] + cost <= limit.count
  end
  -- Makes the granule of `now` the newest.
  local function advance_to(value, first, now, limit)
    local touched, granule = value[first], limit.x
    if now > touched then
      local last = touched - touched % granule + granule - 1
      if now > last then
        if value[first + 1] > 0 then value[limit.list] = value[limit.list] .. pack('<I7I7', last, value[first + 1]) end
        value[first + 1] = 0
      end
      value[first] = now
    end
  end
  local function ends(value, first, limit)
    if value[first + 1] > 0 then return value[first] - value[first] % limit.x + limit.x - 1 + limit.period end
    local list = value[limit.list]
    return list == '' and 0 or unpack_('<I7', list, #list - 13) + limit.period
  end
  local function charge(value, first, now, cost, limit)
    advance_to(value, first, now, limit)
    local units = cost
    if units > MAX - value[first + 2] then units = MAX - value[first + 2] end
    value[first + 1], value[first + 2] = value[first + 1] + units, value[first + 2] + units
    return value[first] - value[first] % limit.x + limit.x - 1 + limit.period
  end
  local function possible(value, first, latest, limit)
    local newest, total = value[first + 1], value[first + 2]
    return value[first] <= latest and total <= MAX and (newest == total or newest < total and value[limit.list] ~= '')
  end
  if check_only then return admits, charge, possible end
  local function possible_before(value, first, latest, limit)
    local list = value[limit.list]
    return possible(value, first, latest, limit) and (list == '' or unpack_('<I7', list) <= value[first])
  end
  local function refund(value, first, now, cost, limit)
    admits(value, first, now, 0, limit)
    advance_to(value, first, now, limit)
    local units = cost < value[first + 2] and cost or value[first + 2]
    if units == value[first + 2] then
      value[first], value[first + 1], value[first + 2], value[limit.list] = 0, 0, 0, ''
      return units
    end
    local left, list = units, value[limit.list]
    while left > 0 and list ~= '' do
      local last, granule = unpack_('<I7I7', list)
      list = sub(list, 15)
      if granule > left then
        list, granule = pack('<I7I7', last, granule - left) .. list, left
      end
      left = left - granule
    end
    value[first + 1], value[first + 2], value[limit.list] = value[first + 1] - left, value[first + 2] - units, list
    return units
  end
  return admits, charge, possible_before, refund, ends
end
