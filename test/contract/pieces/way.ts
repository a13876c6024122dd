/** One way by which bytes get into the gateway, and the gateway that they get into. */
import type { GatewayProcess } from '../../support/gateway-process.ts'

export interface PiecesWorld {
  readonly gateway: GatewayProcess
  readonly managementKey: string
}

export interface Way {
  readonly name: string
  /** Sends BYTES bytes in pieces of this length; resolves when the gateway has handled or refused them. */
  send(world: PiecesWorld, pieceBytes: number): Promise<void>
}

/** Bytes that each way sends, in short pieces and in long ones. */
export const BYTES = 128 * 1024
