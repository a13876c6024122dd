/** Rounds of a burst of requests and a quiet time, at a gateway with the simulated provider. */
import type { GatewayProcess } from '../../support/gateway-process.ts'
import { newAgent, openProbe, pause } from '../../support/stream-probe.ts'

interface IdleRoundsOptions {
  /** Asked before each round. */
  readonly continues: () => boolean
  /** Of each burst; all at the same time. */
  readonly requests: number
  /** Milliseconds without a request after each burst. */
  readonly quietMs: number
  /** Called after each quiet time. */
  readonly onRound: (round: IdleRound) => void
}

export interface IdleRound {
  /** Requests whose stream did not reach its end. */
  readonly failed: number
  /** Resident bytes of the process after the burst and after the quiet time. */
  readonly burstBytes: number
  readonly idleBytes: number
}

export async function idleRounds(
  gateway: GatewayProcess,
  { continues, requests, quietMs, onRound }: IdleRoundsOptions,
): Promise<void> {
  const body = { model: 'sim/echo', stream: true, input: 'word '.repeat(60) }
  while (continues()) {
    const agent = newAgent()
    const target = { port: gateway.port, apiKey: gateway.apiKey, agent }
    const results = await Promise.all(Array.from({ length: requests }, () => openProbe(body, target).result))
    const failed = results.filter(({ status, done }) => status !== 200 || !done).length
    agent.destroy()
    const burstBytes = gateway.rssBytes()
    await pause(quietMs)
    onRound({ failed, burstBytes, idleBytes: gateway.rssBytes() })
  }
}
