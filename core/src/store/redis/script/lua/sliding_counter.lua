-- sliding-counter. Fields: touched, previous, current.
if algorithm == 5 then
  -- floor(a * b / p), exactly, also where a * b passes 2^53: long division in digits of base 8 (b <= p < 2^49).
  local function scaled(a, b, p)
    if a * b <= MAX then return floor(a * b / p) end
    local quotient, rest, power = 0, 0, 8 ^ 17
    while power >= 1 do
      local digit = floor(a / power)
      a = a - digit * power
      rest = rest * 8 + digit * b
      local part = floor(rest / p)
      quotient, rest, power = quotient * 8 + part, rest - part * p, power / 8
    end
    return quotient
  end
  local function ask(f, o, t, c, L)
    local p, s = L.p, f[o]
    if t < s then t = s end
    local past = floor(t / p) - floor(s / p)
    if past == 1 then
      f[o + 1], f[o + 2] = f[o + 2], 0
    elseif past > 1 then
      f[o + 1], f[o + 2] = 0, 0
    end
    f[o] = t
    return scaled(f[o + 1], p - t % p, p) + f[o + 2] + c <= L.n
  end
  local function ends(f, o, L)
    local p = L.p
    local start, counted = f[o] - f[o] % p, f[o + 1]
    if f[o + 2] > 0 then start, counted = start + p, f[o + 2] end
    return counted == 0 and 0 or start + p - floor((p - 1) / counted)
  end
  local function add(f, o, t, c, L)
    local current = f[o + 2] + c
    f[o + 2] = current < MAX and current or MAX
    return ends(f, o, L)
  end
  local function take(f, o, t, c, L)
    ask(f, o, t, 0, L)
    local current, previous = f[o + 2] - c, f[o + 1]
    if current < 0 then
      previous = previous + current
      if previous < 0 then previous = 0 end
      current = 0
    end
    f[o + 1], f[o + 2] = previous, current
    if previous == 0 and current == 0 then f[o] = 0 end
  end
  return ask, add, take, ends
end
