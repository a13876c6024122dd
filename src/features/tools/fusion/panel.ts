/** The fusion panel: calls all members in parallel, and reports the progress of each. Serve threads. */
import type { AskAs, Exchange } from '../../../exchange/exchange.ts'
import type { ToolProgress } from '../../../exchange/server-tool.ts'
import type { InputItem } from '../../../protocol/items.ts'
import type { ResponseResource } from '../../../protocol/response.ts'
import {
  cutText,
  type InnerFailure,
  innerFailure,
  PieceWriter,
  replyText,
  textEvents,
} from '../models/inner-reply.ts'
import type { InnerTerms } from '../models/inner-request.ts'
import type { PanelResponse } from './analysis.ts'

interface FailedMember {
  readonly model: string
  readonly error: string
  readonly status_code?: number
}

interface Source {
  readonly url: string
  readonly title: string
}

export interface PanelOutcome {
  /** In the order of the panel. */
  readonly responses: readonly PanelResponse[]
  readonly failed: readonly FailedMember[]
  /** Codes of the failures, in the same order. */
  readonly codes: readonly InnerFailure['code'][]
  /** Sources that the members cite. */
  readonly sources: readonly Source[]
}

/** Maximum characters of all answers together, which the analyst and the outer model must read. */
const MAX_PANEL_CHARS = 160_000
const MAX_SOURCES = 50
const MEMBER_TIMEOUT_MS = 240_000

interface PanelTerms {
  readonly models: readonly string[]
  readonly terms: InnerTerms
  readonly conversation: readonly InputItem[]
  /** Null if no events are needed. */
  readonly progress: ToolProgress | null
  readonly signal: AbortSignal
}

/** Asks all members. Rejects only if the exchange is over. */
export async function askPanel(
  askAs: AskAs,
  exchange: Exchange,
  { models, terms, conversation, progress, signal }: PanelTerms,
): Promise<PanelOutcome> {
  const maxChars = Math.floor(MAX_PANEL_CHARS / models.length)
  const members = await Promise.all(
    models.map(async (model): Promise<Member> => {
      const report = (name: string, fields: object): void =>
        progress?.({ name: `fusion_call.panel.${name}`, fields: { model, ...fields } })
      const writer = new PieceWriter(maxChars, delta => report('delta', { delta }))
      const reasoningWriter = new PieceWriter(maxChars, delta => report('reasoning.delta', { delta }))
      report('added', {})
      try {
        const reply = await askAs(
          exchange,
          { ...terms, model, input: [...conversation] },
          {
            deadlineMs: MEMBER_TIMEOUT_MS,
            signal,
            ...(progress === null ? {} : { onEvent: textEvents(writer, reasoningWriter) }),
          },
        )
        reasoningWriter.end()
        writer.end()
        const content = cutText(replyText(reply), maxChars)
        if (content === '') throw EMPTY_ANSWER
        report('completed', { content })
        return { kind: 'answered', response: { model, content }, sources: sourcesOf(reply) }
      } catch (thrown) {
        exchange.signal.throwIfAborted()
        const { code, ...failure } = thrown === EMPTY_ANSWER ? NO_ANSWER : innerFailure(thrown)
        report('failed', failure)
        return { kind: 'failed', code, failure: { model, ...failure } }
      }
    }),
  )
  const answeringMembers = members.filter(member => member.kind === 'answered')
  const failures = members.filter(member => member.kind === 'failed')
  return {
    responses: answeringMembers.map(({ response }) => response),
    failed: failures.map(({ failure }) => failure),
    codes: failures.map(({ code }) => code),
    sources: uniqueSources(answeringMembers.flatMap(({ sources }) => sources)).slice(0, MAX_SOURCES),
  }
}

type Member =
  | { readonly kind: 'answered'; readonly response: PanelResponse; readonly sources: readonly Source[] }
  | { readonly kind: 'failed'; readonly code: InnerFailure['code']; readonly failure: FailedMember }

const EMPTY_ANSWER = new Error('the member gave no answer')
const NO_ANSWER: InnerFailure = { code: 'provider_unavailable', error: 'The model gave no answer' }

function sourcesOf({ output }: ResponseResource): readonly Source[] {
  return output.flatMap(item => {
    if (item.type !== 'message' || !Array.isArray(item.content)) return []
    return item.content.flatMap(part =>
      ('annotations' in part ? (part.annotations ?? []) : []).flatMap((annotation): Source[] => {
        const { url, title } = annotation as { readonly url?: unknown; readonly title?: unknown }
        return typeof url === 'string' ? [{ url, title: typeof title === 'string' ? title : url }] : []
      }),
    )
  })
}

function uniqueSources(sources: readonly Source[]): readonly Source[] {
  return [...new Map(sources.map(source => [source.url, source])).values()]
}
