/**
 * Usage records as text: a line of the spool, and the part of a ledger row that has no column. Fields with their
 * default value are left out, and so is the only attempt if it follows from the record itself. Pure. Hot path:
 * `lineOf`.
 *
 * Versions read each other's lines: fields are only added, the required ones stay, and a default never changes. A line
 * that an older version would misread needs another file name (`spool.ts`), which older versions ignore.
 */
import type { UsageAttempt, UsageRecord } from '../usage.ts'

/** Fields that every line has in every version. */
type RequiredField =
  | 'id'
  | 'createdAt'
  | 'organizationId'
  | 'keyHash'
  | 'outcome'
  | 'accounting'
  | 'inputTokens'
  | 'outputTokens'
  | 'cost'

/** A usage record that may lack fields with default values. */
export type UsageLine = Pick<UsageRecord, RequiredField> &
  Partial<Omit<UsageRecord, RequiredField | 'attempts'>> & {
    readonly attempts?: readonly Partial<UsageAttempt>[]
  }

type OptionalField = Extract<
  keyof UsageRecord,
  | 'memberId'
  | 'parent'
  | 'apiType'
  | 'router'
  | 'requestedModel'
  | 'trace'
  | 'app'
  | 'agent'
  | 'parentAgent'
  | 'cacheMiss'
  | 'cachedFrom'
  | 'rollout'
>

const DEFAULT_VALUES: Readonly<Omit<UsageRecord, RequiredField | OptionalField | 'attempts'>> = {
  workspaceId: null,
  model: null,
  provider: null,
  providerName: null,
  upstreamId: null,
  streamed: false,
  cancelled: false,
  error: null,
  finishReason: null,
  nativeFinishReason: null,
  cachedTokens: 0,
  cacheWriteTokens: 0,
  reasoningTokens: 0,
  webSearchRequests: 0,
  isByok: false,
  serviceTier: null,
  dataRegion: null,
  endUser: null,
  sessionId: null,
  latencyMs: 0,
  generationMs: null,
}

export type Writable<T> = { -readonly [Name in keyof T]: T[Name] }

/** The JSON of the record, without a line end. */
export function lineOf(record: UsageRecord): string {
  const line: Writable<UsageLine> = {
    id: record.id,
    createdAt: record.createdAt,
    organizationId: record.organizationId,
    keyHash: record.keyHash,
    outcome: record.outcome,
    accounting: record.accounting,
    inputTokens: record.inputTokens,
    outputTokens: record.outputTokens,
    cost: record.cost,
  }
  if (record.workspaceId !== null) line.workspaceId = record.workspaceId
  if (record.memberId !== undefined) line.memberId = record.memberId
  if (record.parent !== undefined) line.parent = record.parent
  if (record.apiType !== undefined) line.apiType = record.apiType
  if (record.router !== undefined) line.router = record.router
  if (record.requestedModel !== undefined) line.requestedModel = record.requestedModel
  if (record.trace !== undefined) line.trace = record.trace
  if (record.app !== undefined) line.app = record.app
  if (record.cacheMiss !== undefined) line.cacheMiss = record.cacheMiss
  if (record.cachedFrom !== undefined) line.cachedFrom = record.cachedFrom
  if (record.rollout !== undefined) line.rollout = record.rollout
  if (record.agent !== undefined) line.agent = record.agent
  if (record.parentAgent !== undefined) line.parentAgent = record.parentAgent
  if (record.model !== null) line.model = record.model
  if (record.provider !== null) line.provider = record.provider
  if (record.providerName !== null) line.providerName = record.providerName
  if (record.upstreamId !== null) line.upstreamId = record.upstreamId
  if (record.streamed) line.streamed = true
  if (record.cancelled) line.cancelled = true
  if (record.error !== null) line.error = record.error
  if (record.finishReason !== null) line.finishReason = record.finishReason
  if (record.nativeFinishReason !== null) line.nativeFinishReason = record.nativeFinishReason
  if (record.cachedTokens !== 0) line.cachedTokens = record.cachedTokens
  if (record.cacheWriteTokens !== 0) line.cacheWriteTokens = record.cacheWriteTokens
  if (record.reasoningTokens !== 0) line.reasoningTokens = record.reasoningTokens
  if (record.webSearchRequests !== 0) line.webSearchRequests = record.webSearchRequests
  if (record.isByok) line.isByok = true
  if (record.serviceTier !== null) line.serviceTier = record.serviceTier
  if (record.dataRegion !== null) line.dataRegion = record.dataRegion
  if (record.endUser !== null) line.endUser = record.endUser
  if (record.sessionId !== null) line.sessionId = record.sessionId
  if (record.latencyMs !== 0) line.latencyMs = record.latencyMs
  if (record.generationMs !== null) line.generationMs = record.generationMs
  const { attempts } = record
  if (attempts.length > 1 || !isPlain(attempts[0], record)) line.attempts = attempts.map(shorten, record)
  return JSON.stringify(line)
}

/**
 * True if `wholeRecord` finds this attempt from a line without attempts: no attempt if the record has no model,
 * otherwise a successful one.
 */
function isPlain(attempt: UsageAttempt | undefined, record: UsageRecord): boolean {
  if (attempt === undefined) return record.model === null
  return (
    attempt.status === 200 &&
    attempt.error === null &&
    attempt.model === record.model &&
    attempt.provider === record.provider &&
    attempt.providerName === record.providerName &&
    attempt.isByok === record.isByok
  )
}

/** The fields of an attempt that differ from those of its record (`this`). */
function shorten(this: UsageRecord, attempt: UsageAttempt): Partial<UsageAttempt> {
  const shortAttempt: Writable<Partial<UsageAttempt>> = {}
  if (attempt.provider !== this.provider) shortAttempt.provider = attempt.provider
  if (attempt.providerName !== this.providerName) shortAttempt.providerName = attempt.providerName
  if (attempt.model !== this.model) shortAttempt.model = attempt.model
  if (attempt.status !== null) shortAttempt.status = attempt.status
  if (attempt.error !== null) shortAttempt.error = attempt.error
  if (attempt.isByok !== this.isByok) shortAttempt.isByok = attempt.isByok
  return shortAttempt
}

/** The whole record. Fields that this version does not know are kept. */
export function wholeRecord(line: UsageLine): UsageRecord {
  const record: Writable<UsageRecord> = { ...DEFAULT_VALUES, ...line, attempts: [] }
  const { model, provider, providerName, isByok } = record
  const lastAttempt = {
    provider: provider ?? '',
    providerName: providerName ?? '',
    model: model ?? '',
    isByok,
  }
  record.attempts =
    line.attempts?.map(attempt => ({ ...lastAttempt, status: null, error: null, ...attempt })) ??
    (model === null ? [] : [{ ...lastAttempt, status: 200, error: null }])
  return record
}

const TEXT_FIELDS = ['id', 'createdAt', 'organizationId', 'keyHash', 'outcome', 'accounting'] as const
const COUNT_FIELDS = ['inputTokens', 'outputTokens', 'cost'] as const
/** Columns of the ledger that may be null. */
const OPTIONAL_TEXT_FIELDS = [
  'workspaceId',
  'memberId',
  'model',
  'provider',
  'endUser',
  'sessionId',
  'agent',
] as const

/** Null for a line that the ledger cannot store. Such a line would block all later ones. */
export function parseLine(line: string): UsageLine | null {
  let fields: Readonly<Record<string, unknown>> | null
  try {
    fields = JSON.parse(line) as Readonly<Record<string, unknown>> | null
  } catch {
    return null
  }
  if (typeof fields !== 'object' || fields === null) return null
  for (const name of TEXT_FIELDS) if (typeof fields[name] !== 'string') return null
  for (const name of COUNT_FIELDS) if (!Number.isSafeInteger(fields[name])) return null
  for (const name of OPTIONAL_TEXT_FIELDS)
    if (fields[name] != null && typeof fields[name] !== 'string') return null
  const { reasoningTokens, isByok } = fields
  if (reasoningTokens !== undefined && !Number.isSafeInteger(reasoningTokens)) return null
  if (isByok !== undefined && typeof isByok !== 'boolean') return null
  return fields as unknown as UsageLine
}

/**
 * The records of some lines, and the number of lines that are not records because a kill or a full disk left them
 * incomplete.
 */
export function parseLines(text: string): {
  readonly records: readonly UsageLine[]
  readonly invalidLines: number
} {
  const records: UsageLine[] = []
  let invalidLines = 0
  for (const line of text.split('\n')) {
    if (line === '') continue
    const record = parseLine(line)
    if (record === null) invalidLines++
    else records.push(record)
  }
  return { records, invalidLines }
}
