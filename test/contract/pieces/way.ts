/** One way by which bytes get into the gateway, and the gateway that they get into. */
import type { GatewayProcess } from '../../support/gateway-process.ts'

export interface PiecesWorld {
  readonly gateway: GatewayProcess
  readonly managementKey: string
}

export interface Way {
  readonly name: string
  /** Sends BYTES bytes in pieces of this length; resolves with the answer when they are handled or refused. */
  send(world: PiecesWorld, pieceBytes: number): Promise<string>
  /** True if this answer shows that the gateway has read the bytes, or has refused them as it must. */
  isExpected(answer: string, pieceBytes: number): boolean
}

/** Bytes that each way sends, in short pieces and in long ones. */
export const BYTES = 64 * 1024
