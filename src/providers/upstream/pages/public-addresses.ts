/** The networks to which no link, MCP server or alert receiver of a caller may lead. Pure. */
import { BlockList, isIPv4, isIPv6 } from 'node:net'

/** Networks that are not public: this machine, its network and its cloud, which a caller's link must not reach. */
const NOT_PUBLIC_V4: readonly (readonly [string, number])[] = [
  ['0.0.0.0', 8],
  ['10.0.0.0', 8],
  // Shared by the customers of a carrier; one cloud has its metadata service in this network.
  ['100.64.0.0', 10],
  ['127.0.0.0', 8],
  // Link-local, where most clouds have their metadata service.
  ['169.254.0.0', 16],
  ['172.16.0.0', 12],
  ['192.0.0.0', 24],
  ['192.0.2.0', 24],
  ['192.88.99.0', 24],
  ['192.168.0.0', 16],
  ['198.18.0.0', 15],
  ['198.51.100.0', 24],
  ['203.0.113.0', 24],
  ['224.0.0.0', 4],
  ['240.0.0.0', 4],
  // A public address, but in one cloud the machine's host answers there.
  ['168.63.129.16', 32],
]

/** All global addresses. Mapped or translated IPv4, private, link-local and multicast addresses lie outside. */
const GLOBAL_V6: readonly [string, number] = ['2000::', 3]
const NOT_PUBLIC_V6: readonly (readonly [string, number])[] = [
  // Protocol assignments, including Teredo, which can carry any IPv4 address.
  ['2001::', 23],
  ['2001:db8::', 32],
  // 6to4, which can do the same.
  ['2002::', 16],
  ['3fff::', 20],
]

const nonPublicV4 = new BlockList()
for (const [network, prefix] of NOT_PUBLIC_V4) nonPublicV4.addSubnet(network, prefix, 'ipv4')
const globalV6 = new BlockList()
globalV6.addSubnet(...GLOBAL_V6, 'ipv6')
const nonPublicV6 = new BlockList()
for (const [network, prefix] of NOT_PUBLIC_V6) nonPublicV6.addSubnet(network, prefix, 'ipv6')

/** True for a public address in its usual form, without brackets. False for text that is not an address. */
export function isPublicAddress(address: string): boolean {
  if (isIPv4(address)) return !nonPublicV4.check(address, 'ipv4')
  // A zone identifies an interface of this machine.
  if (!isIPv6(address) || address.includes('%')) return false
  return globalV6.check(address, 'ipv6') && !nonPublicV6.check(address, 'ipv6')
}
