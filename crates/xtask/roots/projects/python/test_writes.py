"""What a project's test may be: a queue pair writes into the memory of another.

With WRONG in the environment it writes beyond the region's end.
"""

import os
import unittest

from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context, get_device_list
from pyverbs.enums import (
    IBV_ACCESS_LOCAL_WRITE,
    IBV_ACCESS_REMOTE_WRITE,
    IBV_QPT_RC,
    IBV_WC_SUCCESS,
    IBV_WR_RDMA_WRITE,
)
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, SendWR

ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE


class Writes(unittest.TestCase):
    def test_a_queue_pair_writes_into_memory(self):
        names = [device.name.decode() for device in get_device_list()]
        with Context(name=names[0]) as context:
            pd, cq = PD(context), CQ(context, 4)
            mr = MR(pd, 128, ACCESS)
            mr.write(b"a message", 9)
            init = QPInitAttr(qp_type=IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap())
            one, other = QP(pd, init), QP(pd, init)
            route = GlobalRoute(dgid=context.query_gid(1, 0), sgid_index=0, hop_limit=1)
            for qp, peer in (one, other), (other, one):
                attributes = QPAttr(port_num=1)
                attributes.qp_access_flags = ACCESS
                attributes.dest_qp_num = peer.qp_num
                attributes.ah_attr = AHAttr(gr=route, is_global=1, port_num=1)
                attributes.timeout, attributes.retry_cnt = 14, 7
                qp.to_rts(attributes)
            write = SendWR(opcode=IBV_WR_RDMA_WRITE, num_sge=1, sg=[SGE(mr.buf, 9, mr.lkey)])
            write.set_wr_rdma(mr.rkey, mr.buf + (124 if "WRONG" in os.environ else 64))
            one.post_send(write)
            count = 0
            while not count:
                count, completions = cq.poll()
            self.assertEqual(completions[0].status, IBV_WC_SUCCESS)
            self.assertEqual(mr.read(9, 64), b"a message")


if __name__ == "__main__":
    unittest.main()
