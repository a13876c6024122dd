/** Audit records of management operations. Records are added, removed by age, and never changed. Types only. */

/** The object of a change. */
export interface AuditObject {
  readonly kind:
    | 'key'
    | 'workspace'
    | 'end_user'
    | 'credential'
    | 'guardrail'
    | 'credit'
    | 'vault'
    | 'models'
    | 'capture'
    | 'provider'
    | 'batch'
    | 'rollout'
  readonly id: string
  readonly name: string | null
}

export type AuditAction =
  | `${'key' | 'workspace' | 'end_user' | 'credential' | 'guardrail'}.${'create' | 'update' | 'delete'}`
  | 'key.rotate'
  | `guardrail.${'assign' | 'unassign'}`
  | 'credit.create'
  | `capture.${'create' | 'delete'}`
  | 'vault.rotate'
  | `${'provider' | 'credential'}.check`
  | `provider.${'pause' | 'resume'}`
  | 'batch.cancel'
  | `rollout.${'advance' | 'hold' | 'rollback'}`
  | 'models.import'

export interface AuditEntry {
  readonly organizationId: string
  /** ISO 8601 UTC. */
  readonly createdAt: string
  readonly action: AuditAction
  /**
   * Label of the key that made the change, never the key itself. In a console session: the name of the person who
   * signed in.
   */
  readonly actor: string
  readonly object: AuditObject
  /** Address of the client; null on the command line. */
  readonly address: string | null
}

export interface AuditRecord extends AuditEntry {
  readonly id: string
}
