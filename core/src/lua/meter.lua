-- What the three buckets share. Fields: since, units and, where L.d > 1, part.
-- One unit drains in L.p / L.d µs; L.x: the most units it can owe.
local function meter()
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
  local function drained(f, o, t, k, L)
    local p, d, dt = L.p, L.d, t - f[o]
    if dt < 0 then return 0, 0 end
    local part = d > 1 and f[o + 2] or 0
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
  local function fractions(f, o, t, k, L)
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
  local function ask(f, o, t, c, L)
    local k, s = f[o + 1], f[o]
    if k == 0 then
      if t > s then f[o] = t end
      if L.d > 1 then f[o + 2] = 0 end
      return c <= L.n
    end
    if L.d > 1 then
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
  -- The first whole µs at which k units have drained since f[o].
  local function moment(f, o, k, L)
    local p, d = L.p, L.d
    if d == 1 then return f[o] + k * p end
    if k * p <= MAX then return f[o] + ceil((k * p + f[o + 2]) / d) end
    local units, rest, whole = divided(p, k, d)
    return f[o] + units + whole * k + ceil((rest + f[o + 2]) / d)
  end
  local function add(f, o, t, c, L)
    ask(f, o, t, c, L)
    local k = f[o + 1] + c
    if k > L.x then k = L.x end
    f[o + 1] = k
    return moment(f, o, k, L)
  end
  local function take(f, o, t, c, L)
    ask(f, o, t, c, L)
    local k = f[o + 1] - c
    f[o + 1] = k > 0 and k or 0
  end
  local function ends(f, o, L) return f[o + 1] == 0 and 0 or moment(f, o, f[o + 1], L) end
  return { ask, add, take, ends, drained = drained, moment = moment }
end
