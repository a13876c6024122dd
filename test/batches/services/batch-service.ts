/** Helpers for tests of batch services: calls to a provider at a URL, and everything that a job produces. */
import type { Test } from 'tap'
import { systemClock } from '../../../src/base/clock.ts'
import type { BatchService, EndedLine, JobState } from '../../../src/batches/services/service.ts'
import { ServiceCalls, type ServiceCallsDeps } from '../../../src/batches/services/service-calls.ts'
import type { WireRequest } from '../../../src/formats/format.ts'
import { FORMATS } from '../../../src/formats/table.ts'
import type { BatchFormat } from '../../../src/protocol/provider.ts'
import { createTransports } from '../../../src/providers/upstream/egress.ts'
import { endpointOf } from '../../support/endpoint.ts'

/** The secret of every test. */
export const SECRET = 'sk-secret-0123456789abcdef'

interface Called {
  readonly calls: ServiceCalls
  readonly notices: string[]
  readonly ending: AbortController
}

export function callsTo(
  t: Pick<Test, 'teardown'>,
  baseUrl: string,
  format: BatchFormat,
  more: Partial<ServiceCallsDeps> = {},
): Called {
  const notices: string[] = []
  const client = createTransports({
    clock: systemClock,
    log: { fault: () => undefined },
    proxies: { https: null, http: null, exceptions: null },
    undici: true,
  })
  t.teardown(() => client.close())
  const ending = new AbortController()
  const calls = new ServiceCalls({
    client,
    provider: { ...endpointOf(format).provider, name: 'Acme', baseUrl },
    format: FORMATS[format],
    key: {
      headers: { authorization: `Bearer ${SECRET}` },
      baseUrl,
      credentialId: null,
      secrets: [SECRET],
      owner: "the gateway's key",
    },
    clock: systemClock,
    log: { notice: (_, message) => void notices.push(message) },
    timeouts: { upstreamHeadersMs: 60_000, upstreamIdleMs: 60_000 },
    signal: ending.signal,
    ...more,
  })
  return { calls, notices, ending }
}

/** A request for an echo, in a format. */
export function wireFor(format: BatchFormat, text: string, model = 'echo'): WireRequest {
  const messages = [{ role: 'user', content: text }]
  switch (format) {
    case 'openai-responses':
      return { path: '/responses', body: { model, input: text } }
    case 'openai-chat':
      return { path: '/chat/completions', body: { model, messages } }
    case 'anthropic-messages':
      return {
        path: '/messages',
        headers: { 'anthropic-version': '2023-06-01' },
        body: { model, max_tokens: 99, messages, stream: false },
      }
    case 'google-gemini':
      return {
        path: `/models/${model}:generateContent`,
        body: { contents: [{ role: 'user', parts: [{ text }] }] },
      }
  }
}

/** Submits a job with a line for each text. */
export async function submit(
  service: BatchService,
  calls: ServiceCalls,
  format: BatchFormat,
  texts: readonly string[],
  { mark = 'mark-0', model = 'echo' } = {},
): Promise<string> {
  const lines = texts.map((text, at) => service.line(`${mark}-${at}`, wireFor(format, text, model)))
  return await service.submit(calls, { mark, model, path: wireFor(format, '').path, lines })
}

/** The state of a job, once it has ended. */
export async function ended(service: BatchService, calls: ServiceCalls, name: string): Promise<JobState> {
  for (;;) {
    const state = await service.state(calls, name)
    if (state.kind === 'ended') return state
  }
}

/** All lines of an ended job. */
export async function linesOf(
  service: BatchService,
  calls: ServiceCalls,
  name: string,
): Promise<EndedLine[]> {
  const lines: EndedLine[] = []
  for await (const page of service.lines(calls, name)) lines.push(...page)
  return lines
}
