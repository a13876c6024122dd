/** Faults that may occur while a gateway is tested, and the meaning of each. */
import { NoConnection } from './connection.ts'
import { NoHttp } from './raw-reply.ts'
import { NoReply } from './tester.ts'

/** True for an error caused by the gateway, not by this program. */
export function isNoAnswer(error: unknown): error is Error {
  return error instanceof NoReply || error instanceof NoHttp || error instanceof NoConnection
}
