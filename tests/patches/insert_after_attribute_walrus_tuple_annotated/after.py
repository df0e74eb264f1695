from transformers import AutoModelForCausalLM as A

class Job:
    def __init__(self):
        self.model = A.from_pretrained("a")
        self.model.set_attn_implementation("sdpa")
        print(m := A.from_pretrained("b"))
        m.set_attn_implementation("sdpa")
        one, two = A.from_pretrained("c"), A.from_pretrained("d")
        one.set_attn_implementation("sdpa")
        two.set_attn_implementation("sdpa")
        last: object = A.from_pretrained("e")
        last.set_attn_implementation("sdpa")
        table["f"] = A.from_pretrained("f") if big else None
        if table["f"] is not None:
            table["f"].set_attn_implementation("sdpa")
