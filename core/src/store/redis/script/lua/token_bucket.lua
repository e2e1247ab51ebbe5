-- token-bucket: a meter of missing tokens. L.y: tokens missing from a bucket never seen; a key with such a bucket is
-- remembered for a while when everything about it is over (slow_path.lua).
if algorithm == 6 then
  if not initial then return ask, add, take, ends end
  local function birth(f, o, t, L)
    if f[o] > 0 then return false end
    f[o], f[o + 1] = t, L.y
    if not whole then f[o + 2] = 0 end
    return true
  end
  local function fills(f, o, L)
    if f[o] == 0 then return 0 end
    return whole and f[o] + f[o + 1] * L.p or moment(f, o, f[o + 1], L)
  end
  return function(f, o, t, c, L)
    birth(f, o, t, L)
    return ask(f, o, t, c, L)
  end, add, function(f, o, t, c, L)
    -- Nothing was charged to a bucket never seen: giving back must not fill it.
    if f[o] > 0 then take(f, o, t, c, L) end
  end, fills, birth
end
