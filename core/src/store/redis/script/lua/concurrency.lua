-- concurrency. Fields: touched, total, length of the list; L.p: ttl; L.s: the list's slot.
-- The list: '<I7I7I7' for each hold, the first to expire first: when it expires, its id (0: nobody renews it), its
-- units.
if algorithm == 9 then
  local WIDTH = 21
  local function hold(list, position) return unpack_('<I7I7I7', list, position) end
  local function roll(f, o, t, L)
    local list, position = f[L.s], 1
    if t < f[o] then t = f[o] end
    while position < #list do
      local expires, _, units, after = hold(list, position)
      if expires > t then break end
      position, f[o + 1] = after, f[o + 1] - units
    end
    if position > 1 then f[L.s] = sub(list, position) end
    return t
  end
  local function ask(f, o, t, c, L)
    roll(f, o, t, L)
    return f[o + 1] + c <= L.n
  end
  local function insert(f, o, L, expires, id, units)
    local list = f[L.s]
    local position = #list + 1
    while position > 1 and hold(list, position - WIDTH) > expires do position = position - WIDTH end
    f[L.s] = sub(list, 1, position - 1) .. pack('<I7I7I7', expires, id, units) .. sub(list, position)
    f[o + 1] = f[o + 1] + units
  end
  local function ends(f, o, L)
    local list = f[L.s]
    return list == '' and 0 or (hold(list, #list - WIDTH + 1))
  end
  local function add(f, o, t, c, L, id)
    f[o] = roll(f, o, t, L)
    if c > MAX - f[o + 1] then c = MAX - f[o + 1] end
    insert(f, o, L, f[o] + L.p, id or 0, c)
    return ends(f, o, L)
  end
  local function take(f, o, t, c, L)
    f[o] = roll(f, o, t, L)
    local list = f[L.s]
    local position = #list - WIDTH + 1
    while c > 0 and position > 0 do
      local expires, id, units = hold(list, position)
      if id == 0 then
        local taken = units < c and units or c
        local rest = taken < units and pack('<I7I7I7', expires, 0, units - taken) or ''
        list = sub(list, 1, position - 1) .. rest .. sub(list, position + WIDTH)
        c, f[o + 1] = c - taken, f[o + 1] - taken
      end
      position = position - WIDTH
    end
    f[L.s] = list
  end
  -- Takes a live hold out of the list: its units. Without one nothing changes, and it returns nil.
  local function remove(f, o, t, L, id)
    local touched, total, whole = f[o], f[o + 1], f[L.s]
    f[o] = roll(f, o, t, L)
    local list = f[L.s]
    for position = 1, #list, WIDTH do
      local _, other, units = hold(list, position)
      if other == id then
        f[L.s] = sub(list, 1, position - 1) .. sub(list, position + WIDTH)
        f[o + 1] = f[o + 1] - units
        return units
      end
    end
    f[o], f[o + 1], f[L.s] = touched, total, whole
  end
  local function renew(f, o, t, L, id)
    local units = remove(f, o, t, L, id)
    if units then insert(f, o, L, f[o] + L.p, id, units) end
    return units
  end
  return ask, add, take, ends, nil, nil, renew, remove
end
