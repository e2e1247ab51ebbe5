-- concurrency. Fields: touched, total, length of the list. limit.period: the ttl.
-- The list: '<I7I7I7' for each hold, the first to expire first: when it expires, its id (0: none, so it cannot be renewed),
-- its units.
if algorithm == CONCURRENCY then
  local WIDTH, LONGEST = 21, 316224000000000
  local function hold(list, position) return unpack_('<I7I7I7', list, position) end
  -- Removes the expired holds; returns the later of `now` and the moment of the last change.
  local function drop_expired(value, first, now, limit)
    local list, position = value[limit.list], 1
    if now < value[first] then now = value[first] end
    while position < #list do
      local expires, _, units, after = hold(list, position)
      if expires > now then break end
      position, value[first + 1] = after, value[first + 1] - units
    end
    if position > 1 then value[limit.list] = sub(list, position) end
    if value[first + 1] < 0 then error('total') end
    return now
  end
  local function admits(value, first, now, cost, limit)
    drop_expired(value, first, now, limit)
    return value[first + 1] + cost <= limit.count
  end
  local function insert(value, first, limit, expires, id, units)
    local list = value[limit.list]
    local position = #list + 1
    while position > 1 and hold(list, position - WIDTH) > expires do position = position - WIDTH end
    value[limit.list] = sub(list, 1, position - 1) .. pack('<I7I7I7', expires, id, units) .. sub(list, position)
    value[first + 1] = value[first + 1] + units
  end
  local function ends(value, first, limit)
    local list = value[limit.list]
    return list == '' and 0 or (hold(list, #list - WIDTH + 1))
  end
  local function charge(value, first, now, cost, limit, id)
    value[first] = drop_expired(value, first, now, limit)
    if cost > MAX - value[first + 1] then cost = MAX - value[first + 1] end
    insert(value, first, limit, value[first] + limit.period, id or 0, cost)
    return ends(value, first, limit)
  end
  -- A ttl may have been longer than it is now.
  local function possible(value, first, latest, limit)
    local list, total = value[limit.list], value[first + 1]
    local fits = list == '' and total == 0 or list ~= '' and total >= 0 and total <= MAX
      and hold(list, 1) <= latest + LONGEST and hold(list, #list - WIDTH + 1) <= latest + LONGEST
    return fits and value[first] <= latest
  end
  if check_only then return admits, charge, possible end
  -- Of holds without an id, the first to expire first; with `of` only of those that expire then.
  local function refund(value, first, now, cost, limit, of)
    value[first] = drop_expired(value, first, now, limit)
    local list, left, parts = value[limit.list], cost, {}
    for position = 1, #list, WIDTH do
      local expires, id, units = hold(list, position)
      local taken = (id > 0 or of and of ~= expires) and 0 or units < left and units or left
      left, units = left - taken, units - taken
      if units > 0 then parts[#parts + 1] = pack('<I7I7I7', expires, id, units) end
    end
    value[limit.list], value[first + 1] = table.concat(parts), value[first + 1] - (cost - left)
    return cost - left
  end
  -- Removes a live hold and returns its units. Without one nothing changes, and it returns nil.
  local function close(value, first, now, limit, id)
    local touched, total, whole = value[first], value[first + 1], value[limit.list]
    value[first] = drop_expired(value, first, now, limit)
    local list = value[limit.list]
    for position = 1, #list, WIDTH do
      local _, other, units = hold(list, position)
      if other == id then
        value[limit.list] = sub(list, 1, position - 1) .. sub(list, position + WIDTH)
        value[first + 1] = value[first + 1] - units
        return units
      end
    end
    value[first], value[first + 1], value[limit.list] = touched, total, whole
  end
  local function renew(value, first, now, limit, id)
    local units = close(value, first, now, limit, id)
    if units then insert(value, first, limit, value[first] + limit.period, id, units) end
    return units
  end
  return admits, charge, possible, refund, ends, nil, nil, renew, close
end
