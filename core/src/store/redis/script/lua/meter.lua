-- What the three buckets share. Fields: since, units and, where a unit takes no whole number of µs, part.
-- One unit drains in L.p / L.d µs, `whole` when L.d is 1; L.x: the most units it can owe.
local ask, add, take, ends, drained, moment
if algorithm >= 6 and algorithm <= 8 then
  local fractions
  if not whole then
    -- floor(a * b / p) and what is left over, exactly: long division in digits of base 8 (p < 2^49, b < 2^54).
    local function divided(a, b, p)
      local whole = floor(a / p)
      a = a - whole * p
      local quotient, rest, power = 0, 0, 8 ^ 17
      while power >= 1 do
        local digit = floor(b / power)
        b = b - digit * power
        rest = rest * 8 + digit * a
        local part = floor(rest / p)
        quotient, rest, power = quotient * 8 + part, rest - part * p, power / 8
      end
      return quotient, rest, whole
    end
    -- Whole units drained between f[o] and t, exactly as far as `k` of them, and the parts (of d) left over.
    function drained(f, o, t, k, L)
      local p, d, dt = L.p, L.d, t - f[o]
      if dt < 0 then return 0, 0 end
      local part = f[o + 2]
      if k * p <= MAX then
        local parts = dt * d - part
        if parts < 0 then return 0, 0 end
        local units = floor(parts / p)
        return units, parts - units * p
      end
      local units, rest, whole = divided(dt, d, p)
      units = units + whole * d
      if rest < part then
        local lent = ceil((part - rest) / p)
        units, rest = units - lent, rest + lent * p
      end
      if units < 0 then return 0, 0 end
      return units, rest - part
    end
    function fractions(f, o, t, k, L)
      local units, rest = drained(f, o, t, k, L)
      if units >= k then
        f[o], f[o + 1], f[o + 2] = t, 0, 0
      elseif units > 0 then
        local whole = floor(rest / L.d)
        rest = rest - whole * L.d
        f[o + 1] = k - units
        if rest == 0 then
          f[o], f[o + 2] = t - whole, 0
        else
          f[o], f[o + 2] = t - whole - 1, L.d - rest
        end
      end
    end
    -- The first whole µs at which k units have drained since f[o].
    function moment(f, o, k, L)
      local p, d = L.p, L.d
      if k * p <= MAX then return f[o] + ceil((k * p + f[o + 2]) / d) end
      local units, rest, whole = divided(p, k, d)
      return f[o] + units + whole * k + ceil((rest + f[o + 2]) / d)
    end
  end
  function ask(f, o, t, c, L)
    local k, s = f[o + 1], f[o]
    if k == 0 then
      if t > s then f[o] = t end
      if not whole then f[o + 2] = 0 end
      return c <= L.n
    end
    if not whole then
      fractions(f, o, t, k, L)
      return f[o + 1] + c <= L.n
    end
    local units = floor((t - s) / L.p)
    if units >= k then
      f[o], k = t, 0
      f[o + 1] = 0
    elseif units > 0 then
      f[o], k = s + units * L.p, k - units
      f[o + 1] = k
    end
    return k + c <= L.n
  end
  function add(f, o, t, c, L)
    local k = f[o + 1] + c
    if k > L.x then k = L.x end
    f[o + 1] = k
    if whole then return f[o] + k * L.p end
    return moment(f, o, k, L)
  end
  function take(f, o, t, c, L)
    ask(f, o, t, 0, L)
    local k = f[o + 1] - c
    f[o + 1] = k > 0 and k or 0
  end
  function ends(f, o, L)
    local k = f[o + 1]
    if k == 0 then return 0 end
    return whole and f[o] + k * L.p or moment(f, o, k, L)
  end
end
