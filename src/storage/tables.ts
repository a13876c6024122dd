/** Table types, for typed queries. Column names are snake_case in the database and camelCase here (CamelCasePlugin). */
import type { Generated } from 'kysely'
import type { DataRegion } from '../protocol/data-regions.ts'
import type { BatchEndpoint, BatchStatus } from '../protocol/management/batches.ts'
import type { CREDENTIAL } from '../protocol/management/byok.ts'
import type { CAPTURE } from '../protocol/management/captures.ts'
import type { GUARDRAIL } from '../protocol/management/guardrails.ts'
import type { KEY } from '../protocol/management/keys.ts'
import type { END_USER, WORKSPACE } from '../protocol/management/management.ts'
import type { BigInteger, RowOf } from '../protocol/management/record.ts'
import type { Accounting } from '../protocol/records.ts'
import type { RolloutArm } from '../protocol/rollout.ts'
import type { AuditAction, AuditObject } from './audit.ts'
import type { LineOutcome } from './batches.ts'
import type { FileText } from './files.ts'
import type { NewExplanation } from './ledger.ts'
import type { PauseRecord } from './pauses.ts'
import type { RolloutRecord } from './rollouts.ts'
import type { UsageOutcome } from './usage.ts'

/** A boolean as 0 or 1, because SQLite has no boolean type. */
type Flag = number

/** Times are ISO 8601 UTC, so they sort as text; amounts are in 1e-6 USD. */
export type ApiKeysTable = RowOf<(typeof KEY)['fields']>

/** All secrets of keys that were rotated. */
interface KeySecretsTable {
  hash: string
  /** Hash of the key's first secret. */
  keyHash: string
  label: string
  createdAt: string
  expiresAt: string | null
}

/** Deleted keys, and expired secrets of other keys. */
interface RemovedKeysTable {
  hash: string
}

export type WorkspacesTable = RowOf<(typeof WORKSPACE)['fields']>

export type EndUsersTable = RowOf<(typeof END_USER)['fields']>

export interface CredentialsTable extends RowOf<(typeof CREDENTIAL)['fields']> {
  sealVersion: number
  masterKeyId: string
  wrapped: string
  box: string
}

/** One row. */
interface ConfigurationsTable {
  id: string
  document: string
  updatedAt: string
}

interface CreditsTable {
  organizationId: string
  id: string
  /** 1e-6 USD. */
  amount: BigInteger
  note: string | null
  createdAt: string
}

export type GuardrailsTable = RowOf<(typeof GUARDRAIL)['fields']>

/** Either `keyHash` or `memberId` is null. */
interface GuardrailAssignmentsTable {
  id: string
  organizationId: string
  guardrailId: string
  keyHash: string | null
  memberId: string | null
  assignedBy: string | null
  createdAt: string
}

/** Fields that queries filter or sum have a column. The rest of a record is JSON in `details`. */
export interface UsageTable {
  id: string
  createdAt: string
  organizationId: string
  workspaceId: string | null
  keyHash: string
  /** The member who owned the key when the record was stored: records outlive their keys. */
  memberId: string | null
  model: string | null
  provider: string | null
  endUser: string | null
  /** Also null in records of older versions. */
  sessionId: string | null
  agent: string | null
  outcome: UsageOutcome
  accounting: Accounting
  inputTokens: BigInteger
  outputTokens: BigInteger
  reasoningTokens: BigInteger
  /** 1e-12 USD. */
  cost: BigInteger
  isByok: Flag
  /** 1: counted in the totals. */
  inTotals: Flag
  details: string
}

/** The sums of one owner and day; kysely-store/usage-totals.ts defines the kinds. Missing text is ''. */
export interface UsageTotalsTable {
  organizationId: string
  kind: TotalKind
  owner: string
  /** YYYY-MM-DD. */
  day: string
  keyHash: string
  workspaceId: string
  model: string
  provider: string
  requests: BigInteger
  inputTokens: BigInteger
  outputTokens: BigInteger
  reasoningTokens: BigInteger
  /** Costs are kept in two halves, so that 64 bits hold the sums of millions of dollars. */
  costHigh: BigInteger
  costLow: BigInteger
  byokHigh: BigInteger
  byokLow: BigInteger
}

/** Kind of the owner of a row. With `-models`, sums are separate by workspace, model and provider. */
export type TotalKind =
  | 'key'
  | 'key-models'
  | 'member'
  | 'organization'
  | 'organization-models'
  | 'user-models'

/** At most one row. Records after this id are missing in the totals. */
interface UsageFillTable {
  afterId: string
}

export interface AuditRecordsTable {
  number: Generated<BigInteger>
  organizationId: string
  createdAt: string
  action: AuditAction
  actor: string
  objectKind: AuditObject['kind']
  objectId: string
  objectName: string | null
  address: string | null
}

/** Invisible batches are `opening` while their body arrives, and `removed` until their last line is deleted. */
export type StoredBatchStatus = BatchStatus | 'opening' | 'removed'

/** Fields that are unknown while a batch is opening are '', 0 or null. */
export interface BatchesTable {
  id: string
  organizationId: string
  workspaceId: string | null
  keyHash: string
  /** Unique within organization and key. */
  idempotencyKey: string | null
  bodyHash: string
  endpoint: BatchEndpoint
  model: string
  /** JSON, like `usage` and `service`. */
  preferences: string | null
  dataRegion: DataRegion | null
  withMetadata: Flag
  /** JSON. */
  inputFile: string | null
  status: StoredBatchStatus
  /** Number of stored lines, which are numbered from 0. */
  total: number
  completed: number
  failed: number
  /** Null: no line has a result. */
  usage: string | null
  error: string | null
  service: string | null
  /** JSON. */
  waiting: string | null
  createdAt: string
  expiresAt: string
  startedAt: string | null
  cancellingAt: string | null
  finalizedAt: string | null
  /** Lines up to this number are checked; -1: none. */
  checkedThrough: number
  owner: string | null
  fence: number
  /** Unix milliseconds: the lease of the claim, or of the acceptance while the batch is opening. */
  leaseUntilMs: BigInteger
  /** 1: terminal, but bodies of lines without a result still exist. */
  hasBodies: Flag
  /** Number of requests for which it has reserved room in its workspace. */
  roomRequests: number
  /** Bytes of its bodies and results. */
  roomBytes: BigInteger
}

/** Small rows that change often. Their long texts are in tables of their own, whose rows never change. */
interface BatchLinesTable {
  batchId: string
  number: number
  customId: string
  bodyBytes: number
  /** Unix milliseconds from which the line may be claimed, 0 for a new line; null: it has a result. */
  readyMs: BigInteger | null
  /** Null: the line is not claimed. */
  owner: string | null
  fence: number
  tries: number
}

/** Bodies of lines without a result. */
interface BatchBodiesTable {
  batchId: string
  number: number
  body: string
}

export interface BatchResultsTable {
  batchId: string
  number: number
  outcome: LineOutcome
  resultBytes: number
  result: string
}

/** Jobs at batch services of providers. */
export interface ServiceJobsTable {
  batchId: string
  number: number
  provider: string
  credentialId: string | null
  upstreamModel: string
  format: string
  path: string
  mark: string
  name: string | null
  lines: number
  reserved: string
  createdAt: string
  closed: Flag
  owner: string | null
  fence: number
  /** Unix milliseconds. */
  leaseUntilMs: BigInteger
}

/** Lists of models by their source. */
interface CatalogueSourcesTable {
  source: string
  version: string
  models: number
  /** JSON. */
  facts: string
  updatedAt: string
}

/** The bytes of removed files may still exist. */
export interface FilesTable {
  id: string
  organizationId: string
  workspaceId: string
  number: BigInteger
  filename: string
  purpose: string
  mediaType: string | null
  bytes: BigInteger
  status: 'arriving' | 'stored' | 'removed'
  text: FileText
  createdAt: string
}

/**
 * The words for search are stored separately: in a column `words` in PostgreSQL, in the table `file_words` in SQLite.
 */
interface FilePassagesTable {
  id: Generated<BigInteger>
  fileId: string
  number: number
  text: string
}

interface MemoryTable {
  organizationId: string
  workspaceId: string
  endUser: string
  key: string
  value: string
  updatedAt: string
}

export type CapturesTable = RowOf<(typeof CAPTURE)['fields']>

interface CapturePartsTable {
  captureId: string
  name: string
  node: string
  host: string
  bytes: BigInteger
  requests: BigInteger
  leftOut: BigInteger
}

interface AlertDeliveriesTable {
  alertId: string
  receiver: string
  type: string
  object: string
  body: string
  createdAt: string
  tries: number
  /** Unix milliseconds; null: already delivered. */
  dueMs: BigInteger | null
}

interface PausesTable extends Omit<PauseRecord, 'sinceMs' | 'untilMs'> {
  sinceMs: BigInteger
  untilMs: BigInteger
}

export interface RolloutsTable
  extends Omit<RolloutRecord, 'sinceMs' | 'shadows' | 'shadowSpent' | 'shadowRefused'> {
  sinceMs: BigInteger
  shadows: BigInteger
  shadowSpent: BigInteger
  shadowRefused: BigInteger
}

/** Sums of logarithms; `requests`, `errors`, `judged` and `unaccepted` are counts. */
export interface RolloutSumsTable {
  route: string
  candidate: string
  step: number
  arm: RolloutArm
  requests: BigInteger
  errors: BigInteger
  firstTokenCount: BigInteger
  firstTokenSum: number
  firstTokenSquares: number
  speedCount: BigInteger
  speedSum: number
  speedSquares: number
  costCount: BigInteger
  costSum: number
  costSquares: number
  judged: BigInteger
  unaccepted: BigInteger
}

/** `isPlain` is 0 or 1. */
type ExplanationsTable = Omit<NewExplanation, 'isPlain'> & { readonly isPlain: number }

export interface Tables {
  alertDeliveries: AlertDeliveriesTable
  pauses: PausesTable
  rollouts: RolloutsTable
  rolloutSums: RolloutSumsTable
  captures: CapturesTable
  captureParts: CapturePartsTable
  explanations: ExplanationsTable
  files: FilesTable
  filePassages: FilePassagesTable
  memory: MemoryTable
  catalogueSources: CatalogueSourcesTable
  configurations: ConfigurationsTable
  serviceJobs: ServiceJobsTable
  apiKeys: ApiKeysTable
  keySecrets: KeySecretsTable
  removedKeys: RemovedKeysTable
  workspaces: WorkspacesTable
  endUsers: EndUsersTable
  credentials: CredentialsTable
  credits: CreditsTable
  guardrails: GuardrailsTable
  guardrailAssignments: GuardrailAssignmentsTable
  usage: UsageTable
  usageTotals: UsageTotalsTable
  usageFill: UsageFillTable
  auditRecords: AuditRecordsTable
  batches: BatchesTable
  batchLines: BatchLinesTable
  batchBodies: BatchBodiesTable
  batchResults: BatchResultsTable
}
