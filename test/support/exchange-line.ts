import type { ExchangeLine } from '../../src/log/log.ts'

/** The least that a line of an exchange says. */
export const EXCHANGE_LINE: ExchangeLine = {
  id: 'gen-1',
  method: 'POST',
  route: '/responses',
  status: 200,
  outcome: 'completed',
  durationMs: 1.5,
}
