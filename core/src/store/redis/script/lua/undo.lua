-- How each algorithm gives back what is still counted of a charge, and nothing else; docs/adr/0028 has the reasons. `charge` has
-- the moment (`at`), all units that were charged then (`charged`, 0: not known), for how long after it the units of a lease could
-- be spent (`life`), when the bucket would have been empty again (`empty_at`, 0: not known), how many units went back since
-- (`refunded`), whether a refund without a Decision was made since, which took the oldest units (`refunds_since`), and whether a
-- check is undone, whose units no call used (`undone`). Each returns how many units went back.

local function undo_window(value, first, now, cost, limit, charge)
  return value[first] <= charge.at and limit.refund(value, first, now, cost, limit) or 0
end

local function undo_calendar_window(value, first, now, cost, limit, charge)
  local charged = { 0, 0 }
  limit.admits(charged, 1, charge.at, 0, limit)
  return charged[1] == value[first] and limit.refund(value, first, now, cost, limit) or 0
end

-- The most units that refunds have taken of a charge.
local function taken_by_refunds(cost, charge)
  return charge.refunds_since and (charge.refunded < cost and charge.refunded or cost) or 0
end

-- The units that are certainly left of a charge, where `counted` are in its entry, granule or window. Refunds take the oldest
-- units, so they have taken none of these while there are `older` ones.
local function left_of(cost, counted, older, charge)
  local left = older and cost or cost - taken_by_refunds(cost, charge)
  return counted < left and counted or left
end

-- Of a check that is undone, takes the oldest units in place of those that refunds have taken.
local function with_oldest(own, value, first, now, cost, limit, charge)
  if charge.undone and charge.refunds_since and own < cost then
    own = own + limit.refund(value, first, now, cost - own, limit)
  end
  return own
end

local function undo_sliding_window(value, first, now, cost, limit, charge)
  limit.admits(value, first, now, 0, limit)
  local last, own = charge.at - charge.at % limit.x + limit.x - 1, 0
  if last + limit.period <= now then return 0 end
  if value[first] - value[first] % limit.x + limit.x - 1 == last then
    own = left_of(cost, value[first + 1], value[limit.list] ~= '', charge)
    value[first + 1] = value[first + 1] - own
  else
    local list = value[limit.list]
    for i = 1, #list, 14 do
      local granule, units = unpack_('<I7I7', list, i)
      if granule == last then
        own = left_of(cost, units, i > 1, charge)
        local rest = units > own and pack('<I7I7', last, units - own) or ''
        value[limit.list] = sub(list, 1, i - 1) .. rest .. sub(list, i + 14)
        break
      end
    end
  end
  value[first + 2] = value[first + 2] - own
  return with_oldest(own, value, first, now, cost, limit, charge)
end

local function undo_sliding_counter(value, first, now, cost, limit, charge)
  limit.admits(value, first, now, 0, limit)
  local windows = floor(value[first] / limit.period) - floor(charge.at / limit.period)
  if windows ~= 0 and windows ~= 1 then return 0 end
  -- Units of a previous window that weigh nothing any more are gone.
  if limit.used(value, first, limit) == value[first + 2] then value[first + 1] = 0 end
  local slot = first + 2 - windows
  local own = left_of(cost, value[slot], windows == 0 and value[first + 1] > 0, charge)
  value[slot] = value[slot] - own
  return with_oldest(own, value, first, now, cost, limit, charge)
end

local function undo_bucket(value, first, now, cost, limit, charge)
  if limit.start and value[first] == 0 then return 0 end
  limit.admits(value, first, now, 0, limit)
  -- Up to 2^51 doubles round a quotient as it is rounded exactly.
  local function passed(time)
    local parts = time > 0 and time * limit.x or 0
    if parts > 2251799813685248 then return nil end
    local units = floor(parts / limit.period)
    return units, parts - units * limit.period
  end
  local waiting = passed(charge.empty_at - (limit.x > 1 and 1 or 0) - now) or 0
  waiting = waiting > charge.refunded and waiting - charge.refunded or 0
  local gone, rest = passed(now - charge.at - charge.life)
  if not gone then return 0 end
  -- Refunds have left it alone while as much waits as it charged: they took what stood ahead.
  local taken = math.min(math.max(charge.charged, cost) - waiting, taken_by_refunds(cost, charge))
  if taken > 0 and not charge.undone then cost = cost - taken end
  local own = cost > gone and cost - gone or 0
  if waiting >= own then return limit.refund(value, first, now, cost < waiting and cost or waiting, limit) end
  -- Without the charge the bucket might have been empty since then. What is left may have come later by the part of a unit that
  -- has drained, but not later than now.
  local units = limit.refund(value, first, now, own, limit)
  if value[first] < now then
    local since = value[first] + ceil(rest / limit.x)
    if since >= now then
      since = now
      if limit.x > 1 then value[first + 2] = 0 end
    end
    value[first] = since
  end
  return units
end

local function undo_concurrency(value, first, now, cost, limit, charge)
  return limit.refund(value, first, now, cost, limit, charge.at + limit.period)
end

-- A sliding log has its own, since its older entries are in chunks.
local undo = {
  [FIXED_WINDOW] = undo_window,
  [CALENDAR_WINDOW] = undo_calendar_window,
  [SLIDING_WINDOW] = undo_sliding_window,
  [SLIDING_COUNTER] = undo_sliding_counter,
  [TOKEN_BUCKET] = undo_bucket,
  [GCRA] = undo_bucket,
  [LEAKY_BUCKET] = undo_bucket,
  [CONCURRENCY] = undo_concurrency,
}
