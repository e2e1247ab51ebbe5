-- token-bucket: a meter of missing tokens. L.y: tokens missing from a bucket never seen, which is then remembered
-- for as long as it takes to fill.
if algorithm == 6 then
  if not initial then return ask, add, take, ends end
  local function forgotten(f, o, t, L)
    if f[o] == 0 then return true end
    local k = f[o + 1] + L.n
    if whole then return t - f[o] >= k * L.p end
    return (drained(f, o, t, k, L)) >= k
  end
  local function birth(f, o, t, L)
    if not forgotten(f, o, t, L) then return false end
    f[o], f[o + 1] = t, L.y
    if not whole then f[o + 2] = 0 end
    return true
  end
  local function remembered(f, o, L)
    local k = f[o + 1] + L.n
    return whole and f[o] + k * L.p or moment(f, o, k, L)
  end
  return function(f, o, t, c, L)
    birth(f, o, t, L)
    return ask(f, o, t, c, L)
  end, function(f, o, t, c, L)
    birth(f, o, t, L)
    add(f, o, t, c, L)
    return remembered(f, o, L)
  end, function(f, o, t, c, L)
    -- Nothing was charged to a bucket never seen: giving back must not fill it.
    if not forgotten(f, o, t, L) then take(f, o, t, c, L) end
  end, function(f, o, L)
    return f[o] == 0 and 0 or remembered(f, o, L)
  end, birth
end
