/** What the pipeline offers to the front ends: one verb. */
import type { Call } from '../exchange.ts'
import type { Outcome, Sink } from './sink.ts'

export interface Gateway {
  /** Runs a validated request to its end. Never rejects: whatever happens is in the outcome or in the sink. */
  respond(call: Call, sink: Sink): Promise<Outcome>
}
