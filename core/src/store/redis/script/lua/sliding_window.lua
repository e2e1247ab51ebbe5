-- sliding-window. Fields: touched, newest, total, length of the list; L.d: a granule's length; L.s: the list's slot.
-- The list: '<I7I7' for each granule before the newest, oldest first: its last instant and its units.
if algorithm == 4 then
  local function ask(f, o, t, c, L)
    local s, p, g = f[o], L.p, L.d
    if t < s then t = s end
    if s - s % g + g - 1 + p <= t then
      f[o + 1], f[o + 2], f[L.s] = 0, 0, ''
      return c <= L.n
    end
    local list = f[L.s]
    if list ~= '' then
      local position, used = 1, f[o + 2]
      repeat
        local last, units, after = unpack_('<I7I7', list, position)
        if last + p > t then break end
        position, used = after, used - units
      until position > #list
      if position > 1 then
        f[o + 2], f[L.s] = used, sub(list, position)
      end
    end
    return f[o + 2] + c <= L.n
  end
  local function roll(f, o, t, L)
    local s, g = f[o], L.d
    if t > s then
      local last = s - s % g + g - 1
      if t > last then
        if f[o + 1] > 0 then f[L.s] = f[L.s] .. pack('<I7I7', last, f[o + 1]) end
        f[o + 1] = 0
      end
      f[o] = t
    end
  end
  local function ends(f, o, L)
    if f[o + 1] > 0 then return f[o] - f[o] % L.d + L.d - 1 + L.p end
    local list = f[L.s]
    return list == '' and 0 or unpack_('<I7', list, #list - 13) + L.p
  end
  local function add(f, o, t, c, L)
    roll(f, o, t, L)
    if c > MAX - f[o + 2] then c = MAX - f[o + 2] end
    f[o + 1], f[o + 2] = f[o + 1] + c, f[o + 2] + c
    return f[o] - f[o] % L.d + L.d - 1 + L.p
  end
  local function take(f, o, t, c, L)
    ask(f, o, t, 0, L)
    roll(f, o, t, L)
    if c >= f[o + 2] then
      f[o], f[o + 1], f[o + 2], f[L.s] = 0, 0, 0, ''
      return
    end
    f[o + 2] = f[o + 2] - c
    if c <= f[o + 1] then
      f[o + 1] = f[o + 1] - c
      return
    end
    c = c - f[o + 1]
    f[o + 1] = 0
    local list = f[L.s]
    while c > 0 do
      local last, units = unpack_('<I7I7', list, #list - 13)
      list = sub(list, 1, #list - 14)
      if units > c then list = list .. pack('<I7I7', last, units - c) end
      c = c - units
    end
    f[L.s] = list
  end
  return ask, add, take, ends
end
