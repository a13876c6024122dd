/** The beginning of an exchange. */
import { type Clock, unixSeconds } from '../clock.ts'
import type { Call, Exchange } from './exchange.ts'

export function openExchange(clock: Clock, call: Call): Exchange {
  return {
    ...call,
    prompt: call.request,
    zeroRetention: false,
    pipeline: [],
    parsedFiles: [],
    alignment: null,
    createdAt: unixSeconds(clock),
    startedMs: call.marks.acceptedMs,
    candidates: [],
    attempts: [],
    firstTokenMs: null,
    earlier: null,
    usage: null,
    cost: null,
    shownUsage: null,
    finish: null,
    serviceTier: null,
    upstreamId: null,
    outputCharacters: 0,
    accounting: 'none',
    reservation: null,
    accounted: false,
  }
}
