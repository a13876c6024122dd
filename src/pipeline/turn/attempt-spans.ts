/** Spans of attempts. Called only while the request is traced. */
import type { Clock } from '../../base/clock.ts'
import type { AttemptRecord } from '../../exchange/exchange.ts'
import type { CallFigures } from '../accounting/account.ts'
import type { RoutedExchange } from '../exchange-stages.ts'

type TracedExchange = Pick<RoutedExchange, 'attempts' | 'bill' | 'spans'>

/** Begins the span of an attempt. `from`: the first attempt of the call; `isBeside`: it races with another attempt. */
export function openSpan(
  { attempts, bill, spans }: TracedExchange,
  record: AttemptRecord,
  from: number,
  isBeside: boolean,
  clock: Clock,
): void {
  if (spans === null) return
  const kind = isBeside ? 'hedge' : attempts.length > from + 1 ? 'again' : 'first'
  const how = { kind, isByok: record.isByok, turn: bill.turns } as const
  record.span = spans.attempt(record.endpoint, how, clock.monotonicMs())
}

/** Ends the span of an attempt whose figures are already in the bill. */
export function closeSpan(
  { bill, spans }: TracedExchange,
  { span, status, error, upstreamId }: AttemptRecord,
  { usage, finish }: CallFigures,
  clock: Clock,
): void {
  if (span === undefined) return
  const cost = (bill.total?.cost ?? 0) - (bill.closed?.cost ?? 0)
  const end = {
    status,
    error: error?.code ?? null,
    isOutrun: false,
    upstreamId,
    finish: finish?.reason ?? null,
    usage: usage ?? null,
  }
  spans?.ended(span, end, cost, clock.monotonicMs())
}
