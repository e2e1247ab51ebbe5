-- token-bucket: a meter of missing tokens. L.y: tokens missing from a bucket never seen, which is then remembered
-- for as long as it takes to fill.
rules[6] = function()
  local four = meter()
  local ask, add, take, ends = four[1], four[2], four[3], four[4]
  local function forgotten(f, o, t, L)
    if f[o] == 0 then return true end
    local k = f[o + 1] + L.n
    return (four.drained(f, o, t, k, L)) >= k
  end
  local function birth(f, o, t, L)
    if L.y == 0 or not forgotten(f, o, t, L) then return false end
    f[o], f[o + 1] = t, L.y
    if L.d > 1 then f[o + 2] = 0 end
    return true
  end
  return {
    function(f, o, t, c, L)
      if L.y > 0 then birth(f, o, t, L) end
      return ask(f, o, t, c, L)
    end,
    function(f, o, t, c, L)
      if L.y == 0 then return add(f, o, t, c, L) end
      birth(f, o, t, L)
      add(f, o, t, c, L)
      return four.moment(f, o, f[o + 1] + L.n, L)
    end,
    function(f, o, t, c, L)
      -- Nothing was charged to a bucket never seen: giving back must not fill it.
      if L.y == 0 or not forgotten(f, o, t, L) then take(f, o, t, c, L) end
    end,
    function(f, o, L)
      if L.y == 0 then return ends(f, o, L) end
      return f[o] == 0 and 0 or four.moment(f, o, f[o + 1] + L.n, L)
    end,
    birth,
  }
end
