/** Table types of captures. */
import type { CaptureEnding } from './captures.ts'

/** 64 bits, which PostgreSQL returns as text. */
type BigInteger = number | string | bigint

export interface CapturesTable {
  id: string
  organizationId: string
  keyHash: string | null
  workspaceId: string | null
  createdBy: string
  maxBytes: BigInteger
  bytes: BigInteger
  requests: BigInteger
  leftOut: BigInteger
  createdAt: string
  endsAt: string
  endedAt: string | null
  endedBy: CaptureEnding | null
  expiresAt: string
}

export interface CapturePartsTable {
  captureId: string
  name: string
  node: string
  host: string
  bytes: BigInteger
  requests: BigInteger
  leftOut: BigInteger
}
