-- fixed-window. Fields: opened, used.
if algorithm == 1 then
  local function ask(f, o, t, c, L)
    if t >= f[o] + L.p then f[o + 1] = 0 end
    return f[o + 1] + c <= L.n
  end
  local function add(f, o, t, c, L)
    if f[o + 1] == 0 then f[o] = t end
    local used = f[o + 1] + c
    f[o + 1] = used < MAX and used or MAX
    return f[o] + L.p
  end
  local function take(f, o, t, c, L)
    ask(f, o, t, 0, L)
    local used = f[o + 1] - c
    if used <= 0 then f[o], used = 0, 0 end
    f[o + 1] = used
  end
  local function ends(f, o, L) return f[o + 1] == 0 and 0 or f[o] + L.p end
  return ask, add, take, ends
end
