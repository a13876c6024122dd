import type { ExchangeLine } from '../../src/base/log/log.ts'

/** The minimal log line of an exchange. */
export const EXCHANGE_LINE: ExchangeLine = {
  id: 'gen-1',
  method: 'POST',
  route: '/responses',
  status: 200,
  outcome: 'completed',
  durationMs: 1.5,
}
